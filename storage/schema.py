"""The tables, as SQLAlchemy Core sees them; knows names and types, and runs nothing.

Rules that every table keeps:

* `seq` is the primary key wherever order matters: rows are ordered by it and never by a clock, which may jump.
* Times are float seconds since the epoch, in columns whose names end in `_at`.
* Every cell is text or JSON that can be read with the database's own command line: ids and hashes are hex. Bytes from
  outside are blobs all the same, as they came: a text column of PostgreSQL takes no NUL.
* Every row that belongs to a session names it by its `seq`, a foreign key: nothing can be written to an erased one.
  What is looked up within a session is indexed by session first. Sessions in use are mostly young ones, so that the
  same few index pages are written again and again (ids are random; an index on ids alone dirties a page per row).
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from transom.storage.hex_type import Hex

metadata = MetaData()


def _seq() -> Column[int]:
    """Return the ordering key: a rowid alias on SQLite, a 64-bit sequence on PostgreSQL."""
    return Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _session() -> Column[int]:
    """Return the reference to the session that a row belongs to and is erased with."""
    return Column("session", BigInteger, ForeignKey("sessions.seq"), nullable=False)


meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    _seq(),
    Column("id", Hex, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("key_hash", Hex),
    Column("source", Text, nullable=False),
    Column("user_hash", Hex),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Index("sessions_by_tenant", "tenant", "seq"),
    Index("sessions_by_user", "user_hash"),
    Index("sessions_by_key", "key_hash"),
)

preambles = Table(
    "preambles",
    metadata,
    _seq(),
    _session(),
    Column("id", Hex, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("payload", LargeBinary),
    UniqueConstraint("session", "id", name="preambles_once"),
)

messages = Table(
    "messages",
    metadata,
    _seq(),
    _session(),
    Column("id", Hex, nullable=False),
    Column("parent", Hex),
    Column("role", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("items", Integer, nullable=False),
    Column("payload", LargeBinary),
    UniqueConstraint("session", "id", name="messages_once"),
)

COMPLETED = text("completion_id IS NOT NULL")

requests = Table(
    "requests",
    metadata,
    _seq(),
    _session(),
    Column("head", Hex, nullable=False),
    Column("id", Text, nullable=False),
    Column("preamble", Hex),
    Column("step", Hex),
    Column("reply", Hex),
    Column("completion_id", Text),
    Column("model", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("status", Integer),
    Column("complete", Boolean, nullable=False),
    Column("window", Text, nullable=False),
    Column("tool_limit", Text),
    Column("messages_before", BigInteger),
    Column("messages_sent", BigInteger),
    Column("tokens_before", BigInteger),
    Column("tokens_sent", BigInteger),
    Column("tokens_stable", BigInteger),
    Column("token_limit", BigInteger),
    Column("usage_prompt", BigInteger),
    Column("usage_cached", BigInteger),
    Column("usage_completion", BigInteger),
    Column("duration_ms", BigInteger),
    Column("created_at", Double, nullable=False),
    Column("turn", Hex),
    # by id first, so that it is the look-up by id too: our ids are in the order of time, its end is all that is written
    UniqueConstraint("id", "session", "head", name="requests_once"),
    Index("requests_by_session", "session"),
)

# read through from end to end when somebody asks, and cheap to write: by completion id it would dirty a page a row
completions = Index("requests_completions", requests.c.seq, requests.c.completion_id)
"""Of those alone that are COMPLETED, which `transom.storage.creation` says in the words of one database."""

steps = Table(
    "steps",
    metadata,
    _session(),
    Column("head", Hex, nullable=False),
    Column("preamble", Hex, nullable=False),
    Column("policy", Hex, nullable=False),
    Column("recipe", Text, nullable=False),
    PrimaryKeyConstraint("session", "head", "preamble", "policy"),
    sqlite_with_rowid=False,
)

baselines = Table(
    "baselines",
    metadata,
    _seq(),
    _session(),
    Column("at", Hex, nullable=False),
    Column("position", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("policy", Hex, nullable=False),
    Column("recipe", Text, nullable=False),
    Column("summary", Hex),
    UniqueConstraint("session", "at", "kind", "policy", name="baselines_once"),
)

summaries = Table(
    "summaries",
    metadata,
    _seq(),
    _session(),
    Column("id", Hex, nullable=False),
    Column("upto", Hex, nullable=False),
    Column("position", Integer, nullable=False),
    Column("previous", Hex),
    Column("text", LargeBinary, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_version", Text, nullable=False),
    Column("constraints", Text, nullable=False),
    Column("ledger", Text, nullable=False),
    UniqueConstraint("session", "id", name="summaries_once"),
)

links = Table(
    "links",
    metadata,
    Column("link", Hex, nullable=False),
    _session(),
    Column("message", Hex, nullable=False),
    PrimaryKeyConstraint("link", "session"),
    Index("links_by_session", "session"),
    sqlite_with_rowid=False,
)

factors = Table(
    "factors",
    metadata,
    Column("model", Text, primary_key=True),
    Column("ratios", Text, nullable=False),
    Column("updated_at", Double, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("session", Hex, primary_key=True),
    Column("root", Hex, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("expires_at", Double, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    _seq(),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("tenant", Text),
    Column("session", Hex),
    Column("created_at", Double, nullable=False),
)

OF_A_SESSION: tuple[Table, ...] = (links, baselines, summaries, steps, requests, preambles, messages)
"""What names a session by its `seq` and is erased before it; leases name it by its id."""
