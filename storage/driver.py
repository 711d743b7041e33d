"""The port to a database's own driver, and SQL compiled once for it; knows no statement and no row.

The hot path goes without SQLAlchemy's engine: statements are written with its Core, compiled here to text that
takes parameters by position, and executed by plain cursors (measured: a tenth of the cost).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Protocol, cast

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.elements import ClauseElement

from transom.storage.hex_type import Hex
from transom.storage.store import CannotOpen, Corrupt, MissingParent, NotADatabase, StorageError, StorageTimeout


class Fault(Enum):
    """Why a driver refused, in words that give nothing away."""

    BUSY = "locked or too slow"
    CONFLICT = "in each other's way with another process"
    LOST = "connection lost"
    FULL = "disk full"
    READ_ONLY = "read-only"
    IO = "input/output error"
    CORRUPT = "damaged"
    NOT_A_DATABASE = "not a database"
    REPLACED = "the file was replaced"
    CANNOT_OPEN = "cannot open"
    PARENT = "a row refers to what is not stored"
    VALUE = "a value that cannot be stored"
    OTHER = "failed"


_ERRORS: dict[Fault, type[StorageError]] = {
    Fault.BUSY: StorageTimeout,
    Fault.PARENT: MissingParent,
    Fault.CORRUPT: Corrupt,
    Fault.NOT_A_DATABASE: NotADatabase,
    Fault.CANNOT_OPEN: CannotOpen,
}


def storage_error(operation: str, fault: Fault) -> StorageError:
    """Return the error that tells a caller about a fault."""
    return _ERRORS.get(fault, StorageError)(operation, fault.value)


class DriverFault(Exception):
    """A fault that no driver reports by itself."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class Cursor(Protocol):
    """What sqlite3's and psycopg's cursors have in common."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...
    def executemany(self, sql: str, parameters: Any, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> Any: ...


class Connection(Protocol):
    """What sqlite3's and psycopg's connections have in common; always in autocommit mode."""

    def cursor(self) -> Cursor: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """One database, as seen by the threads that talk to it."""

    errors: tuple[type[Exception], ...]
    """What it raises when the database refuses; anything else is a mistake in the calling code."""
    begin: str
    """Opens a write transaction; never one that reads first and asks for the lock later."""
    unhurried: tuple[str, ...]
    """Executed first in a transaction that may take longer than one call's deadline."""

    @property
    def dialect(self) -> Dialect:
        """Return the dialect that statements are compiled with."""

    def connect(self, *, read_only: bool) -> Connection:
        """Open a connection; raises the driver's errors."""

    def pipeline(self, connection: Connection) -> AbstractContextManager[Any]:
        """Return a context in which statements are sent without waiting for each answer."""

    def rollback(self, connection: Connection) -> None:
        """Leave a transaction, if one is open."""

    def check(self) -> None:
        """Raise DriverFault if the database is no longer the one that was opened."""

    def fault(self, error: BaseException, connection: Connection | None) -> Fault:
        """Say what an error means."""

    def wipe(self, cursor: Cursor) -> bool:
        """Remove what was erased from the database's journal too; false if readers are in the way."""

    def size(self, cursor: Cursor) -> int:
        """Return the database's size in bytes."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement as a driver takes it: its text, the names of its parameters in order, which of them are hex."""

    sql: str
    names: tuple[str, ...]
    constants: Mapping[str, Any]
    hexed: tuple[int, ...]

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in order, given by name."""
        known = {**values, **self.constants} if self.constants else values
        parameters = [known[name] for name in self.names]
        for place in self.hexed:
            parameters[place] = parameters[place].hex()
        return parameters

    def binder(self) -> Callable[[Sequence[Any]], list[tuple[Any, ...]]]:
        """Return a function that reads the parameters off rows' attributes of the same names (two or more)."""
        names = list(dict.fromkeys(self.names))
        read, order = attrgetter(*names), [names.index(name) for name in self.names]
        hexed = sorted({order[place] for place in self.hexed})

        def bind(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
            columns: list[Sequence[Any]] = list(zip(*map(read, rows), strict=True))
            for place in hexed:  # a column at a time: half the cost of a cell at a time
                columns[place] = [None if value is None else value.hex() for value in columns[place]]
            return list(zip(*[columns[place] for place in order], strict=True))

        return bind


def compile_statement(statement: ClauseElement, dialect: Dialect) -> Compiled:
    """Compile a Core statement for plain cursors."""
    compiled = cast("Any", statement.compile(dialect=dialect))
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    names = tuple(compiled.positiontup or ())
    hexed = tuple(place for place, name in enumerate(names) if isinstance(compiled.binds[name].type, Hex))
    return Compiled(str(compiled), names, constants, hexed)
