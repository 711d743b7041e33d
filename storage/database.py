"""Opening a database: the lock file, the schema's version, migrations and the secret; runs no other statement.

Refusals are one-line errors (`transom.storage.store.CannotOpen` and below) without the path; whoever configured the
database knows it. A file that is not ours is never changed, deleted or made anew.
"""

import fcntl
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import create_engine, event, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from transom.storage.creation import create
from transom.storage.driver import Driver, Fault, compile_statement, storage_error
from transom.storage.identity import SECRET_BYTES
from transom.storage.left_out import left_out
from transom.storage.schema import meta, metadata
from transom.storage.sqlite_driver import SqliteDriver
from transom.storage.store import CannotOpen, LockedByProcess, NotADatabase, SchemaTooNew, StorageError

SCHEMA = 2
"""The number of the newest migration this program brings along."""
READABLE_FROM = 1
"""The oldest program that can read what that migration leaves."""
_ENGINES = {"sqlite": "sqlite+pysqlite://", "postgresql": "postgresql+psycopg://"}
_ALEMBIC = "alembic_version"
LOST_TRIES, LOST_PAUSE_S = 4, 0.5
_MIGRATION_LOCK = 0x7472616E736F6D
"""The key of PostgreSQL's advisory lock under which one worker migrates and the others wait."""


@dataclass(frozen=True, slots=True)
class _Version:
    """What a database says of its schema: the last migration, and the oldest program that can read it."""

    schema: int
    readable_from: int


class Database:
    """An opened database that this process may use until it is closed."""

    def __init__(self, url: URL, driver: Driver, secret: bytes, lock: "FileLock | None") -> None:
        self.url = url
        self.driver = driver
        self.secret = secret
        self._lock = lock

    @classmethod
    def open(cls, url: str, *, synchronous: str = "normal", timeout_s: float = 2.0) -> Self:
        """Open, create or migrate the database behind a SQLAlchemy URL; blocks, so call it at start.

        Raises CannotOpen or a class below it.
        """
        parsed = _parse(url)
        lock = None
        try:
            if parsed.get_backend_name() == "sqlite":
                path, lock = _claim(parsed)
                parsed = parsed.set(database=str(path), query={})
                driver: Driver = SqliteDriver(path, synchronous=_synchronous(synchronous), timeout_s=timeout_s)
            else:
                # 8 MB that nobody needs beside a SQLite file.
                from transom.storage.postgres_driver import PostgresDriver  # noqa: PLC0415

                driver = PostgresDriver(parsed, timeout_s=timeout_s)
            return cls(parsed, driver, _settled(driver), lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        """Let go of the lock; connections are closed by those who opened them."""
        if self._lock is not None:
            self._lock.release()


class FileLock:
    """An exclusive lock on a file beside the database; the system drops it when the process dies."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            raise CannotOpen("open", "the lock file beside the database cannot be written") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise LockedByProcess(
                "open", "another process has this SQLite database open; several processes need PostgreSQL"
            ) from None

    def release(self) -> None:
        """Unlock; the file stays, since removing it would let two processes lock two files of one name."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _parse(url: str) -> URL:
    """Read a database URL; its text may hold a password and is never quoted."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise CannotOpen("open", "the database's URL cannot be read") from None
    if parsed.drivername in ("sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise CannotOpen("open", "SQLite needs a file; use session.missing: memory to keep nothing")
        return parsed.set(drivername="sqlite+aiosqlite")
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise CannotOpen("open", "the database's URL starts neither with sqlite+aiosqlite: nor with postgresql+psycopg:")


def _synchronous(value: str) -> str:
    """Check a pragma's word, which can't be a parameter."""
    if value not in ("normal", "full"):
        raise CannotOpen("open", "synchronous is neither normal nor full")
    return value


def _claim(url: URL) -> tuple[Path, FileLock]:
    """Lock a SQLite file for this process; a new one is made readable to its owner alone."""
    path = Path(os.path.realpath(str(url.database)))
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        lock.release()
        raise CannotOpen("open", "the database's file cannot be opened for writing") from None
    return path, lock


def _settled(driver: Driver) -> bytes:
    """Settle a database whose server may be starting, or be busy with others that start at the same time."""
    for _ in range(LOST_TRIES):
        try:
            return _settle(driver)
        except CannotOpen as refusal:
            if refusal.cause != Fault.LOST.value:
                raise
            time.sleep(LOST_PAUSE_S)
    return _settle(driver)


def _settle(driver: Driver) -> bytes:
    """Bring the schema up to date and return the secret."""
    connection = None
    try:
        connection = driver.connect(read_only=True)
        cursor = connection.cursor()
        version = _version(driver, cursor)
        if version is None or version.schema < SCHEMA:
            _migrate(driver)
            version = _version(driver, cursor)
        if version is None or version.readable_from > SCHEMA:
            raise SchemaTooNew("open", "the database was made by a newer version that this one cannot read")
        _wipe(driver)
        return bytes.fromhex(_meta(driver, cursor)["secret"])
    except DBAPIError as error:
        raise _refusal(driver.fault(error.orig or error, connection)) from None
    except driver.errors as error:
        raise _refusal(driver.fault(error, connection)) from None
    finally:
        if connection is not None:
            connection.close()


def _wipe(driver: Driver) -> None:
    """Finish an erasure that a kill interrupted: its bytes may still stand in the journal."""
    connection = driver.connect(read_only=False)
    try:
        driver.wipe(connection.cursor())
    finally:
        connection.close()


def _refusal(fault: Fault) -> StorageError:
    """Return the error to refuse with: whatever happens while opening, the database can't be opened."""
    error = storage_error("open", fault)
    return error if isinstance(error, CannotOpen) else CannotOpen("open", fault.value)


def _version(driver: Driver, cursor: Any) -> _Version | None:
    """Return what the database says of its schema, None if it is empty."""
    tables = _tables(driver, cursor)
    if not tables:
        return None
    if not {meta.name, _ALEMBIC} <= tables:
        raise NotADatabase("open", "the database belongs to another program")
    cursor.execute("SELECT version_num FROM alembic_version")
    return _Version(int(cursor.fetchone()[0]), int(_meta(driver, cursor)["readable_from"]))


def _tables(driver: Driver, cursor: Any) -> set[str]:
    """Return the names of the tables there are; a PostgreSQL schema may be shared with tables of other names."""
    if driver.dialect.name == "sqlite":
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {row[0] for row in cursor.fetchall()}
    cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    return {row[0] for row in cursor.fetchall()} & {*metadata.tables, _ALEMBIC}


def _meta(driver: Driver, cursor: Any) -> dict[str, str]:
    """Return the table of what the database says of itself."""
    cursor.execute(compile_statement(select(meta.c.key, meta.c.value), driver.dialect).sql)
    return dict(cursor.fetchall())


def _migrate(driver: Driver) -> None:
    """Make the tables, or run what migrations are missing, in one transaction and under a lock."""
    with _transaction(driver) as connection:
        if driver.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        version = _version(driver, connection.connection.cursor())  # another process may have been first
        if version is None:
            create(connection, schema=SCHEMA, readable_from=READABLE_FROM)
        elif version.schema < SCHEMA:
            with left_out("pygments"):  # Mako can paint errors with it, in 5 MB
                from transom.storage.migrations.run import upgrade  # noqa: PLC0415 - a quarter of a second
            upgrade(connection)
        if connection.execute(select(meta.c.key).where(meta.c.key == "secret")).first() is None:
            connection.execute(meta.insert().values(key="secret", value=secrets.token_hex(SECRET_BYTES)))


def _transaction(driver: Driver) -> Any:
    """Return a write transaction of an engine made for it; DDL is part of it on both databases."""

    def connect() -> Any:
        connection: Any = driver.connect(read_only=False)
        if driver.dialect.name == "postgresql":
            connection.autocommit = False
            connection.execute("SET statement_timeout = 0")
            connection.execute("SET lock_timeout = 0")
            connection.commit()
        return connection

    url = _ENGINES[driver.dialect.name]
    engine = create_engine(url, creator=connect, poolclass=NullPool, hide_parameters=True)
    if driver.dialect.name == "sqlite":
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(driver.begin))
    return engine.begin()
