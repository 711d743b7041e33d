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


def _blob(name: str, *, null: bool = False, unique: bool = False) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=null, unique=unique)


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=null)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _figure(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger)


def _time(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False)


def upgrade() -> None:
    """Create the tables, and note that every program can read them."""
    meta = op.create_table("meta", sa.Column("key", sa.Text, primary_key=True), _blob("value"))
    op.bulk_insert(meta, [{"key": "readable_from", "value": b"1"}])
    _create_history()
    _create_requests()
    _create_views()
    _create_shared()


def _create_history() -> None:
    op.create_table(
        "sessions",
        _seq(),
        _blob("id", unique=True),
        _text("tenant"),
        _blob("key_hash", null=True),
        _text("source"),
        _blob("user_hash", null=True),
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
        _blob("id"),
        _count("tokens"),
        _blob("payload", null=True),
        sa.UniqueConstraint("session", "id", name="preambles_once"),
    )
    op.create_table(
        "messages",
        _seq(),
        _session(),
        _blob("id"),
        _blob("parent", null=True),
        _text("role"),
        _count("tokens"),
        _count("items"),
        _blob("payload", null=True),
        sa.UniqueConstraint("session", "id", name="messages_once"),
        sa.ForeignKeyConstraint(
            ["session", "parent"], ["messages.session", "messages.id"], name="messages_have_parents"
        ),
    )
    op.create_index("messages_by_parent", "messages", ["session", "parent"])


def _create_requests() -> None:
    op.create_table(
        "requests",
        _seq(),
        _session(),
        _blob("head"),
        _text("id"),
        *(_blob(name, null=True) for name in ("preamble", "step", "reply")),
        _text("completion_id", null=True),
        _text("model"),
        _text("policy"),
        sa.Column("status", sa.Integer),
        sa.Column("complete", sa.Boolean, nullable=False),
        _text("window"),
        _text("tool_limit", null=True),
        *(_figure(name) for name in ("tokens_before", "tokens_sent", "tokens_stable", "token_limit")),
        *(_figure(name) for name in ("usage_prompt", "usage_cached", "usage_completion", "duration_ms")),
        _time("created_at"),
        sa.UniqueConstraint("session", "head", "id", name="requests_once"),
    )
    op.create_index("requests_by_id", "requests", ["id"])
    op.create_index("requests_by_completion", "requests", ["completion_id"])


def _create_views() -> None:
    op.create_table(
        "steps",
        _seq(),
        _session(),
        *(_blob(name) for name in ("head", "preamble", "policy", "recipe")),
        sa.UniqueConstraint("session", "head", "preamble", "policy", name="steps_once"),
    )
    op.create_table(
        "baselines",
        _seq(),
        _session(),
        _blob("at"),
        _count("position"),
        _text("kind"),
        _blob("policy"),
        _blob("recipe"),
        _blob("summary", null=True),
        sa.UniqueConstraint("session", "at", "kind", "policy", name="baselines_once"),
    )
    op.create_table(
        "summaries",
        _seq(),
        _session(),
        _blob("id"),
        _blob("upto"),
        _count("position"),
        _blob("previous", null=True),
        _blob("text"),
        _count("tokens"),
        _text("model"),
        _text("prompt_version"),
        _blob("constraints"),
        sa.UniqueConstraint("session", "id", name="summaries_once"),
    )


def _create_shared() -> None:
    op.create_table(
        "links",
        _seq(),
        _session(),
        _blob("link"),
        _blob("message"),
        sa.UniqueConstraint("session", "link", name="links_once"),
    )
    op.create_index("links_by_link", "links", ["link", "seq"])
    op.create_table("factors", sa.Column("model", sa.Text, primary_key=True), _blob("ratios"), _time("updated_at"))
    op.create_table(
        "leases",
        sa.Column("session", sa.LargeBinary, primary_key=True),
        sa.Column("root", sa.LargeBinary, primary_key=True),
        _text("holder"),
        _time("expires_at"),
    )
    op.create_table(
        "audit",
        _seq(),
        _text("who"),
        _text("what"),
        _text("tenant", null=True),
        _blob("session", null=True),
        _time("created_at"),
    )
