"""PostgreSQL by psycopg 3, synchronous: connections, what its errors mean; knows nothing of tables."""

from contextlib import AbstractContextManager
from typing import Any, cast

import psycopg
from psycopg import errors
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect
from sqlalchemy.engine import URL, Dialect

from transom.storage.driver import Connection, Cursor, DriverFault, Fault

_FAULTS: tuple[tuple[type[psycopg.Error], Fault], ...] = (
    (errors.ForeignKeyViolation, Fault.PARENT),
    (errors.QueryCanceled, Fault.BUSY),
    (errors.LockNotAvailable, Fault.BUSY),
    (errors.DeadlockDetected, Fault.CONFLICT),
    (errors.SerializationFailure, Fault.CONFLICT),
    (errors.DiskFull, Fault.FULL),
    (errors.ReadOnlySqlTransaction, Fault.READ_ONLY),
    (errors.DataCorrupted, Fault.CORRUPT),
    (errors.IndexCorrupted, Fault.CORRUPT),
    (psycopg.DataError, Fault.VALUE),
    (psycopg.IntegrityError, Fault.VALUE),
    (errors.ProgramLimitExceeded, Fault.VALUE),
)


class PostgresDriver:
    """One PostgreSQL database."""

    errors: tuple[type[Exception], ...] = (psycopg.Error, UnicodeError, OverflowError, DriverFault)
    begin = "BEGIN"
    unhurried: tuple[str, ...] = ("SET LOCAL statement_timeout = 0",)

    def __init__(self, url: URL, *, timeout_s: float) -> None:
        _, self._arguments = self.dialect.create_connect_args(url)
        self._timeout_s = timeout_s

    @property
    def dialect(self) -> Dialect:
        """Return the dialect that statements are compiled with: parameters by position."""
        return cast("Dialect", cast("Any", psycopg_dialect)(paramstyle="format"))

    def connect(self, *, read_only: bool) -> Connection:
        """Open a connection whose statements end within the deadline and that notices a dead server."""
        defaults = {
            "connect_timeout": max(2, round(self._timeout_s)),
            "tcp_user_timeout": max(1000, round(self._timeout_s * 1000)),
            "keepalives_idle": 10,
            "application_name": "transom",
        }
        connection = psycopg.connect(**{**defaults, **self._arguments, "autocommit": True})
        try:
            milliseconds = str(max(1, round(self._timeout_s * 1000)))
            for name in ("statement_timeout", "lock_timeout"):
                connection.execute("SELECT set_config(%s, %s, false)", (name, milliseconds))
            if read_only:
                connection.execute("SET default_transaction_read_only = on")
        except BaseException:
            connection.close()
            raise
        return cast("Connection", connection)

    def pipeline(self, connection: Connection) -> AbstractContextManager[Any]:
        """Return psycopg's pipeline: a whole group of statements costs one round trip."""
        return cast("psycopg.Connection[Any]", connection).pipeline()

    def rollback(self, connection: Connection) -> None:
        """Leave a transaction, if one is open."""
        if not cast("psycopg.Connection[Any]", connection).closed:
            connection.cursor().execute("ROLLBACK")

    def check(self) -> None:
        """Do nothing: a server's database can't be replaced under an open connection."""

    def fault(self, error: BaseException, connection: Connection | None) -> Fault:
        """Say what an error means."""
        if isinstance(error, DriverFault):
            return error.fault
        if isinstance(error, UnicodeError | OverflowError):
            return Fault.VALUE
        if not isinstance(error, psycopg.Error):
            return Fault.OTHER
        unanswered = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
        if unanswered or (connection is not None and cast("psycopg.Connection[Any]", connection).closed):
            return Fault.LOST
        if isinstance(error, errors.NotNullViolation) and error.diag.column_name == "session":
            return Fault.PARENT
        return next((fault for kind, fault in _FAULTS if isinstance(error, kind)), Fault.OTHER)

    def wipe(self, cursor: Cursor) -> bool:
        """Do nothing: dead rows go with VACUUM, the write-ahead log with its rotation."""
        return True

    def size(self, cursor: Cursor) -> int:
        """Return the bytes of the whole database."""
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])
