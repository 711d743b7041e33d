"""The statements that write rows, in the order in which a group of batches executes them; runs nothing.

Parameters are named after the rows' attributes. Whatever the conversation consists of is only ever added: the first
writer wins, so that a retry and a second worker change nothing.

Processes that write to the same sessions at the same time must not wait for each other in a circle. So every group
goes through the tables in one order, and through each table's rows in the order of their sessions; and a last use, of
which one is as good as another, is left to whoever is just writing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Insert, Table, Update, bindparam, case, exists, or_, select, update
from sqlalchemy.engine import Dialect

from transom.storage import schema
from transom.storage.driver import compile_statement
from transom.storage.hex_type import Hex
from transom.storage.rows import Batch
from transom.storage.upsert import insert


@dataclass(frozen=True, slots=True)
class Write:
    """How the rows of one list of a batch are written."""

    rows: str
    sql: str
    bind: Callable[[Sequence[Any]], list[tuple[Any, ...]]]
    of: Callable[[Batch], Sequence[Any]]
    order: Callable[[Any], Any] | None
    """What rows of several batches are sorted by; None leaves them as they came, as where nobody else writes."""


_ATTRIBUTES: dict[str, dict[str, str]] = {
    "sessions": {"created_at": "at", "used_at": "at"},
    "requests": {"created_at": "at"},
    "audit": {"created_at": "at"},
    "factors": {"updated_at": "at", "ratios": "ratios_json"},
    "summaries": {"text": "text_bytes", "constraints": "constraints_json", "ledger": "ledger_json"},
    "steps": {"recipe": "recipe_text"},
    "baselines": {"recipe": "recipe_text"},
}
"""Columns that a row calls otherwise."""

_ORDERED_BY: dict[str, str | None] = {"sessions": "id", "factors": "model", "audit": None}
"""What the rows of a list are ordered by, where it is not their session. A session's own rows stay as they came."""

_NAMED_BY_SEQ = frozenset(table.name for table in schema.OF_A_SESSION)
_KEPT_ON_REQUEST = frozenset({"seq", "id", "session", "head", "created_at"})


def _insert(table: Table, dialect: Dialect) -> Any:
    """Return an insert of a whole row in the dialect's own flavour, which knows ON CONFLICT."""
    names = _ATTRIBUTES.get(table.name, {})
    columns = [column.name for column in table.c if column.name != "seq"]
    values: dict[str, Any] = {name: bindparam(names.get(name, name)) for name in columns}
    if table is schema.messages:
        values["session"] = _session_with_parent()
    elif table.name in _NAMED_BY_SEQ:
        values["session"] = session_seq()
    return insert(table, dialect).values(values).inline()


def session_seq() -> Any:
    """Return the number of the session whose id is the parameter `session`; NULL, which no column takes, if unknown."""
    named = schema.sessions.c.id == bindparam("session", type_=Hex)
    return select(schema.sessions.c.seq).where(named).scalar_subquery()


def _session_with_parent() -> Any:
    """Return the number of a message's session; NULL too if the session does not hold the message's parent.

    This stands for a foreign key from messages to messages, which would need an index of its own.
    """
    session, message, parent = schema.sessions, schema.messages.alias(), bindparam("parent", type_=Hex)
    stored = exists().where(message.c.session == session.c.seq, message.c.id == parent)
    named = session.c.id == bindparam("session", type_=Hex)
    return select(session.c.seq).where(named, or_(parent.is_(None), stored)).scalar_subquery()


def _added(table: Table, dialect: Dialect) -> Insert:
    """Return an insert that leaves what is there already."""
    statement: Insert = _insert(table, dialect).on_conflict_do_nothing()
    return statement


def _session(dialect: Dialect) -> Insert:
    """Return an insert that of a known session only moves the last use on."""
    table = schema.sessions
    statement = _insert(table, dialect)
    later = case((statement.excluded.used_at > table.c.used_at, statement.excluded.used_at), else_=table.c.used_at)
    upsert: Insert = statement.on_conflict_do_update(index_elements=["id"], set_={"used_at": later})
    return upsert


def _use(dialect: Dialect) -> Update:
    """Return an update of the last use; of a session that another process holds it changes nothing."""
    table = schema.sessions
    due = [table.c.id == bindparam("session"), table.c.used_at < bindparam("at")]
    if dialect.name == "postgresql":
        free = select(table.c.seq).where(*due).with_for_update(key_share=True, skip_locked=True)
        due = [table.c.seq == free.scalar_subquery()]
    return update(table).where(*due).values(used_at=bindparam("at"))


def _replaced(table: Table, dialect: Dialect, key: list[str], kept: frozenset[str]) -> Insert:
    """Return an insert that replaces what is there already."""
    statement = _insert(table, dialect)
    columns = {column.name: statement.excluded[column.name] for column in table.c if column.name not in kept}
    upsert: Insert = statement.on_conflict_do_update(index_elements=key, set_=columns)
    return upsert


def write_statements(dialect: Dialect) -> tuple[Write, ...]:
    """Return the writes of a batch, parents before children."""
    statements: tuple[tuple[str, Insert | Update], ...] = (
        ("sessions", _session(dialect)),
        ("uses", _use(dialect)),
        ("preambles", _added(schema.preambles, dialect)),
        ("messages", _added(schema.messages, dialect)),
        ("summaries", _added(schema.summaries, dialect)),
        ("baselines", _added(schema.baselines, dialect)),
        ("steps", _added(schema.steps, dialect)),
        ("requests", _replaced(schema.requests, dialect, ["id", "session", "head"], _KEPT_ON_REQUEST)),
        ("links", _added(schema.links, dialect)),
        ("factors", _replaced(schema.factors, dialect, ["model"], frozenset({"model"}))),
        ("audit", _insert(schema.audit, dialect)),
    )
    writes = []
    for rows, statement in statements:
        compiled = compile_statement(statement, dialect)
        key = _ORDERED_BY.get(rows, "session") if dialect.name == "postgresql" else None
        order = None if key is None else attrgetter(key)
        writes.append(Write(rows, compiled.sql, compiled.binder(), attrgetter(rows), order))
    return tuple(writes)
