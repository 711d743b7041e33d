"""Databases to test on: a SQLite file always, PostgreSQL where TRANSOM_TEST_POSTGRES names one."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from transom.storage.database import Database
from transom.storage.schema import metadata
from transom.storage.sql_store import SqlStore

POSTGRES = "TRANSOM_TEST_POSTGRES"
"""Names a database by a postgresql+psycopg:// URL; each test gets a schema of its own there."""


BACKENDS = ["sqlite", "postgresql"]


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Name an empty database."""
    if request.param == "sqlite":
        yield _file_url(tmp_path / "transom.db")
    else:
        yield from _schema()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Name an empty PostgreSQL schema."""
    yield from _schema()


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    """Name a SQLite file that does not exist."""
    return tmp_path / "transom.db"


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite file with tables and no rows, to be copied."""
    file = tmp_path_factory.mktemp("migrated") / "transom.db"
    Database.open(_file_url(file)).close()
    return file


@pytest.fixture(scope="session")
def migrated_schema() -> Iterator[str]:
    """Name a PostgreSQL schema with tables, to be emptied before each use."""
    for named in _schema():
        Database.open(named).close()
        yield named


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SqlStore]:
    """Open an empty store on either database."""
    if request.param == "sqlite":
        named = _copied(request.getfixturevalue("migrated_file"), request.getfixturevalue("sqlite_file"))
    else:
        named = _emptied(request.getfixturevalue("migrated_schema"))
    opened = SqlStore.open(named, timeout_s=60.0)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite_store(migrated_file: Path, sqlite_file: Path) -> AsyncIterator[SqlStore]:
    """Open a store on a SQLite file."""
    opened = SqlStore.open(_copied(migrated_file, sqlite_file), timeout_s=60.0)
    yield opened
    await opened.close()


@pytest.fixture
async def hasty_store(migrated_file: Path, sqlite_file: Path) -> AsyncIterator[SqlStore]:
    """Open a store on a SQLite file, with a deadline short enough to wait for."""
    opened = SqlStore.open(_copied(migrated_file, sqlite_file), timeout_s=0.6)
    yield opened
    await opened.close()


@pytest.fixture
async def postgres_store(migrated_schema: str) -> AsyncIterator[SqlStore]:
    """Open a store on PostgreSQL."""
    opened = SqlStore.open(_emptied(migrated_schema), timeout_s=60.0)
    yield opened
    await opened.close()


def _file_url(file: Path) -> str:
    return f"sqlite+aiosqlite:///{file}"


def _copied(migrated: Path, file: Path) -> str:
    shutil.copyfile(migrated, file)
    return _file_url(file)


def _emptied(named: str) -> str:
    tables = ", ".join(table.name for table in metadata.sorted_tables if table.name != "meta")
    with psycopg.connect(_server(named), autocommit=True) as connection:
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY")
    return named


def _server(named: str) -> str:
    return make_url(named).set(drivername="postgresql").render_as_string(hide_password=False)


def _schema() -> Iterator[str]:
    configured = os.environ.get(POSTGRES)
    if not configured:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{POSTGRES} is not set: in CI both databases are tested")
        pytest.skip(f"{POSTGRES} is not set")
    schema = f"test_{uuid4().hex}"
    with psycopg.connect(_server(configured), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        named = make_url(configured).update_query_dict({"options": f"-csearch_path={schema}"})
        yield named.render_as_string(hide_password=False)
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
