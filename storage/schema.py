"""The tables, as SQLAlchemy Core sees them; knows names and types, and runs nothing.

Rules that every table keeps:

* `seq` is the primary key wherever order matters: rows are ordered by it and never by a clock, which may jump.
* Times are float seconds since the epoch, in columns whose names end in `_at`.
* Whatever a client or a model wrote is a blob (text columns lose NUL bytes on PostgreSQL and half an emoji everywhere).
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
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

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
    Column("value", LargeBinary, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    _seq(),
    Column("id", LargeBinary, nullable=False, unique=True),
    Column("tenant", Text, nullable=False),
    Column("key_hash", LargeBinary),
    Column("source", Text, nullable=False),
    Column("user_hash", LargeBinary),
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
    Column("id", LargeBinary, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("payload", LargeBinary),
    UniqueConstraint("session", "id", name="preambles_once"),
)

messages = Table(
    "messages",
    metadata,
    _seq(),
    _session(),
    Column("id", LargeBinary, nullable=False),
    Column("parent", LargeBinary),
    Column("role", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("items", Integer, nullable=False),
    Column("payload", LargeBinary),
    UniqueConstraint("session", "id", name="messages_once"),
    ForeignKeyConstraint(["session", "parent"], ["messages.session", "messages.id"], name="messages_have_parents"),
    Index("messages_by_parent", "session", "parent"),
)

requests = Table(
    "requests",
    metadata,
    _seq(),
    _session(),
    Column("head", LargeBinary, nullable=False),
    Column("id", Text, nullable=False),
    Column("preamble", LargeBinary),
    Column("step", LargeBinary),
    Column("reply", LargeBinary),
    Column("completion_id", Text),
    Column("model", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("status", Integer),
    Column("complete", Boolean, nullable=False),
    Column("window", Text, nullable=False),
    Column("tool_limit", Text),
    Column("tokens_before", BigInteger),
    Column("tokens_sent", BigInteger),
    Column("tokens_stable", BigInteger),
    Column("token_limit", BigInteger),
    Column("usage_prompt", BigInteger),
    Column("usage_cached", BigInteger),
    Column("usage_completion", BigInteger),
    Column("duration_ms", BigInteger),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("session", "head", "id", name="requests_once"),
    Index("requests_by_id", "id"),
    Index("requests_by_completion", "completion_id"),
)

steps = Table(
    "steps",
    metadata,
    _seq(),
    _session(),
    Column("head", LargeBinary, nullable=False),
    Column("preamble", LargeBinary, nullable=False),
    Column("policy", LargeBinary, nullable=False),
    Column("recipe", LargeBinary, nullable=False),
    UniqueConstraint("session", "head", "preamble", "policy", name="steps_once"),
)

baselines = Table(
    "baselines",
    metadata,
    _seq(),
    _session(),
    Column("at", LargeBinary, nullable=False),
    Column("position", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("policy", LargeBinary, nullable=False),
    Column("recipe", LargeBinary, nullable=False),
    Column("summary", LargeBinary),
    UniqueConstraint("session", "at", "kind", "policy", name="baselines_once"),
)

summaries = Table(
    "summaries",
    metadata,
    _seq(),
    _session(),
    Column("id", LargeBinary, nullable=False),
    Column("upto", LargeBinary, nullable=False),
    Column("position", Integer, nullable=False),
    Column("previous", LargeBinary),
    Column("text", LargeBinary, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_version", Text, nullable=False),
    Column("constraints", LargeBinary, nullable=False),
    UniqueConstraint("session", "id", name="summaries_once"),
)

links = Table(
    "links",
    metadata,
    _seq(),
    _session(),
    Column("link", LargeBinary, nullable=False),
    Column("message", LargeBinary, nullable=False),
    UniqueConstraint("session", "link", name="links_once"),
    Index("links_by_link", "link", "seq"),
)

factors = Table(
    "factors",
    metadata,
    Column("model", Text, primary_key=True),
    Column("ratios", LargeBinary, nullable=False),
    Column("updated_at", Double, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("session", LargeBinary, primary_key=True),
    Column("root", LargeBinary, primary_key=True),
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
    Column("session", LargeBinary),
    Column("created_at", Double, nullable=False),
)

OF_A_SESSION: tuple[Table, ...] = (links, baselines, summaries, steps, requests, preambles, messages)
"""What names a session by its `seq` and is erased before it; leases name it by its id."""
