"""Leases on threads, so that of several workers one does background work; timed by the database's clock alone."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Double, Text, bindparam, cast, delete, func, literal_column, or_
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ColumnElement

from transom.storage.driver import Compiled, Cursor, compile_statement
from transom.storage.hex_type import Hex
from transom.storage.schema import leases
from transom.storage.upsert import insert


class Leases:
    """Takes and returns leases inside the writer's transactions."""

    def __init__(self, dialect: Dialect) -> None:
        now = _now(dialect)
        end = now + cast(bindparam("seconds", type_=Double), Double)
        key = {"session": bindparam("session", type_=Hex), "root": bindparam("root", type_=Hex)}
        holder = bindparam("holder", type_=Text)
        statement = insert(leases, dialect).values(**key, holder=holder, expires_at=end)
        statement = statement.on_conflict_do_update(
            index_elements=["session", "root"],
            set_={"holder": statement.excluded.holder, "expires_at": statement.excluded.expires_at},
            where=or_(leases.c.expires_at <= now, leases.c.holder == statement.excluded.holder),
        )
        ours = [leases.c[name] == value for name, value in key.items()]
        self._take = compile_statement(statement, dialect)
        self._release = compile_statement(delete(leases).where(*ours, leases.c.holder == holder), dialect)

    def take(self, session: bytes, root: bytes, holder: str, seconds: float) -> Callable[[Cursor], bool]:
        """Return work that takes or prolongs a lease and says whether it is ours now."""
        values = {"session": session, "root": root, "holder": holder, "seconds": float(seconds)}
        return lambda cursor: _count(cursor, self._take, values) == 1

    def release(self, session: bytes, root: bytes, holder: str) -> Callable[[Cursor], None]:
        """Return work that gives a lease back if it is still ours."""

        def work(cursor: Cursor) -> None:
            _count(cursor, self._release, {"session": session, "root": root, "holder": holder})

        return work


def _now(dialect: Dialect) -> ColumnElement[float]:
    """Return the database's clock in seconds since the epoch."""
    if dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Double)
    return literal_column("(julianday('now') - 2440587.5) * 86400.0", Double)


def _count(cursor: Cursor, statement: Compiled, values: dict[str, Any]) -> int:
    """Execute a statement and return how many rows it touched."""
    cursor.execute(statement.sql, statement.bind(values))
    return cursor.rowcount
