"""SQLite by the standard library's driver: connections, what its errors mean, and the erasure of its journal.

It knows nothing of tables. Write transactions begin IMMEDIATE, since one that reads first meets BUSY_SNAPSHOT at once.
"""

import sqlite3
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

from sqlalchemy.dialects.sqlite.pysqlite import dialect as pysqlite
from sqlalchemy.engine import Dialect

from transom.storage.driver import Connection, Cursor, DriverFault, Fault

_FAULTS = {
    sqlite3.SQLITE_BUSY: Fault.BUSY,
    sqlite3.SQLITE_LOCKED: Fault.BUSY,
    sqlite3.SQLITE_INTERRUPT: Fault.BUSY,
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_READONLY: Fault.READ_ONLY,
    sqlite3.SQLITE_IOERR: Fault.IO,
    sqlite3.SQLITE_CORRUPT: Fault.CORRUPT,
    sqlite3.SQLITE_NOTADB: Fault.NOT_A_DATABASE,
    sqlite3.SQLITE_CANTOPEN: Fault.CANNOT_OPEN,
    sqlite3.SQLITE_PERM: Fault.CANNOT_OPEN,
    sqlite3.SQLITE_TOOBIG: Fault.VALUE,
    sqlite3.SQLITE_MISMATCH: Fault.VALUE,
    sqlite3.SQLITE_RANGE: Fault.VALUE,
}
_WIPE_PATIENCE_MS = 100
"""How long a stuck reader may keep the writer from everybody else's rows."""


class SqliteDriver:
    """One SQLite file."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeError, OverflowError, DriverFault)
    begin = "BEGIN IMMEDIATE"
    unhurried: tuple[str, ...] = ()

    def __init__(self, path: Path, *, synchronous: str, timeout_s: float) -> None:
        self._path = path
        self._synchronous = synchronous
        self._timeout_s = timeout_s
        self._identity = self._stat()

    @property
    def dialect(self) -> Dialect:
        """Return the dialect that statements are compiled with."""
        return cast("Dialect", pysqlite(paramstyle="qmark"))

    def connect(self, *, read_only: bool) -> Connection:
        """Open a connection that waits for locks no longer than the deadline."""
        self.check()
        connection = sqlite3.connect(
            self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            self._prepare(connection, read_only)
        except BaseException:
            connection.close()
            raise
        return cast("Connection", connection)

    def _prepare(self, connection: sqlite3.Connection, read_only: bool) -> None:
        """Set what a connection of ours always has."""
        connection.execute("PRAGMA trusted_schema = OFF")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            return
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise DriverFault(Fault.CANNOT_OPEN)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cache_size = -8000")  # KiB; four times as much saves no time, even of large groups
        connection.execute("PRAGMA wal_autocheckpoint = 4000")

    def pipeline(self, connection: Connection) -> AbstractContextManager[Any]:
        """Return a context that does nothing: there is no way to wait for."""
        return nullcontext()

    def rollback(self, connection: Connection) -> None:
        """Leave a transaction, if one is open."""
        if cast("sqlite3.Connection", connection).in_transaction:
            connection.cursor().execute("ROLLBACK")

    def check(self) -> None:
        """Raise DriverFault if another file lies where ours was: rows written to ours would be lost."""
        if self._stat() != self._identity:
            raise DriverFault(Fault.REPLACED)

    def _stat(self) -> tuple[int, int] | None:
        """Return what tells files apart, None where there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def fault(self, error: BaseException, connection: Connection | None) -> Fault:
        """Say what an error means; the driver raises builtin ones for texts and numbers that it can't pass on."""
        if isinstance(error, DriverFault):
            return error.fault
        if isinstance(error, UnicodeError | OverflowError):
            return Fault.VALUE
        if not isinstance(error, sqlite3.Error):
            return Fault.OTHER
        code = getattr(error, "sqlite_errorcode", 0)
        nobody = code == sqlite3.SQLITE_CONSTRAINT_NOTNULL and str(error).endswith(".session")
        if nobody or code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            return Fault.PARENT
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            return Fault.VALUE
        return _FAULTS.get(code & 0xFF, Fault.OTHER)

    def wipe(self, cursor: Cursor) -> bool:
        """Fold the write-ahead log into the file, where erased bytes are zeros, and empty it."""
        cursor.execute(f"PRAGMA busy_timeout = {_WIPE_PATIENCE_MS}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return bool(cursor.fetchone()[0] == 0)
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {round(self._timeout_s * 1000)}")

    def size(self, cursor: Cursor) -> int:
        """Return the bytes of the file and its write-ahead log."""
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())
