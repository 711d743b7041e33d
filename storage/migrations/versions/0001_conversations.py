"""Creates every table of the first version."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _seq() -> sa.Column[int]:
    return sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True)


def _session() -> sa.Column[int]:
    return sa.Column("session", sa.BigInteger, sa.ForeignKey("sessions.seq"), nullable=False)


def _blob(name: str, *, null: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=null)


def _text(name: str, *, null: bool = False, unique: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null, unique=unique)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _figure(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger)


def _time(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def upgrade() -> None:
    """Create the tables, and note that every program can read them."""
    meta = op.create_table("meta", sa.Column("key", sa.Text, primary_key=True), _text("value"))
    op.bulk_insert(meta, [{"key": "readable_from", "value": "1"}])
    _create_history()
    _create_requests()
    _create_views()
    _create_shared()


def _create_history() -> None:
    op.create_table(
        "sessions",
        _seq(),
        _text("id", unique=True),
        _text("tenant"),
        _text("key_hash", null=True),
        _text("source"),
        _text("user_hash", null=True),
        _time("created_at"),
        _time("used_at"),
    )
    op.create_index("sessions_by_tenant", "sessions", ["tenant", "seq"])
    op.create_index("sessions_by_user", "sessions", ["user_hash"])
    op.create_index("sessions_by_key", "sessions", ["key_hash"])
    op.create_table(
        "preambles",
        _seq(),
        _session(),
        _text("id"),
        _count("tokens"),
        _blob("payload", null=True),
        sa.UniqueConstraint("session", "id", name="preambles_once"),
    )
    op.create_table(
        "messages",
        _seq(),
        _session(),
        _text("id"),
        _text("parent", null=True),
        _text("role"),
        _count("tokens"),
        _count("items"),
        _blob("payload", null=True),
        sa.UniqueConstraint("session", "id", name="messages_once"),
    )


def _create_requests() -> None:
    op.create_table(
        "requests",
        _seq(),
        _session(),
        _text("head"),
        _text("id"),
        *(_text(name, null=True) for name in ("preamble", "step", "reply")),
        _text("completion_id", null=True),
        _text("model"),
        _text("policy"),
        sa.Column("status", sa.Integer),
        sa.Column("complete", sa.Boolean, nullable=False),
        _text("window"),
        _text("tool_limit", null=True),
        *(_figure(name) for name in ("messages_before", "messages_sent")),
        *(_figure(name) for name in ("tokens_before", "tokens_sent", "tokens_stable", "token_limit")),
        *(_figure(name) for name in ("usage_prompt", "usage_cached", "usage_completion", "duration_ms")),
        _time("created_at"),
        sa.UniqueConstraint("id", "session", "head", name="requests_once"),
    )
    completed = sa.text("completion_id IS NOT NULL")
    op.create_index("requests_by_session", "requests", ["session"])
    op.create_index(
        "requests_completions", "requests", ["seq", "completion_id"], sqlite_where=completed, postgresql_where=completed
    )


def _create_views() -> None:
    op.create_table(
        "steps",
        _session(),
        *(_text(name) for name in ("head", "preamble", "policy", "recipe")),
        sa.PrimaryKeyConstraint("session", "head", "preamble", "policy"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "baselines",
        _seq(),
        _session(),
        _text("at"),
        _count("position"),
        _text("kind"),
        _text("policy"),
        _text("recipe"),
        _text("summary", null=True),
        sa.UniqueConstraint("session", "at", "kind", "policy", name="baselines_once"),
    )
    op.create_table(
        "summaries",
        _seq(),
        _session(),
        _text("id"),
        _text("upto"),
        _count("position"),
        _text("previous", null=True),
        _blob("text"),
        _count("tokens"),
        _text("model"),
        _text("prompt_version"),
        _text("constraints"),
        _text("ledger"),
        sa.UniqueConstraint("session", "id", name="summaries_once"),
    )


def _create_shared() -> None:
    op.create_table(
        "links",
        _text("link"),
        _session(),
        _text("message"),
        sa.PrimaryKeyConstraint("link", "session"),
        sqlite_with_rowid=False,
    )
    op.create_index("links_by_session", "links", ["session"])
    op.create_table("factors", sa.Column("model", sa.Text, primary_key=True), _text("ratios"), _time("updated_at"))
    op.create_table(
        "leases",
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("root", sa.Text, primary_key=True),
        _text("holder"),
        _time("expires_at"),
    )
    op.create_table(
        "audit",
        _seq(),
        _text("who"),
        _text("what"),
        _text("tenant", null=True),
        _text("session", null=True),
        _time("created_at"),
    )
