"""What survives SIGKILL."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transom.storage.database import SCHEMA, Database
from transom.storage.sql_store import SqlStore
from transom.storage.store import LockedByProcess

ROOT = Path(__file__).parents[2]


def holding(folder: Path, canary: bytes) -> list[str]:
    """Return the names of the files with these bytes in them."""
    return [file.name for file in folder.iterdir() if canary in file.read_bytes()]


def rows(file: Path, statement: str) -> list[tuple[str, ...]]:
    """Ask a database that nobody has open."""
    connection = sqlite3.connect(file)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(sqlite_file: Path) -> Start:
    def started(*arguments: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "tests.storage.writing_process",
            arguments[0],
            str(sqlite_file),
            *arguments[1:],
        ]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    return started


@pytest.mark.parametrize("acknowledged", [1, 400])
def test_what_was_acknowledged_is_there_after_a_kill(start: Start, sqlite_file: Path, acknowledged: int) -> None:
    with start("turns", "8") as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        seen += process.stdout.readlines()
    told = {line.strip() for line in seen if line.endswith("\n")}
    assert len(told) >= acknowledged
    Database.open(f"sqlite:///{sqlite_file}").close()
    with sqlite3.connect(sqlite_file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        stored = {identity for (identity,) in connection.execute("SELECT id FROM messages")}
    connection.close()
    assert told <= stored


def test_a_killed_creation_is_begun_anew(start: Start, sqlite_file: Path) -> None:
    with start("create") as process:
        assert process.wait() == -signal.SIGKILL
    assert rows(sqlite_file, "SELECT name FROM sqlite_master") == []
    Database.open(f"sqlite:///{sqlite_file}").close()
    assert rows(sqlite_file, "SELECT version_num FROM alembic_version") == [(f"{SCHEMA:04}",)]


def test_a_killed_migration_is_begun_anew(start: Start, sqlite_file: Path) -> None:
    Database.open(f"sqlite:///{sqlite_file}").close()
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("ALTER TABLE requests DROP COLUMN turn")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.close()
    with start("migrate") as process:
        assert process.wait() == -signal.SIGKILL
    assert rows(sqlite_file, "SELECT version_num FROM alembic_version") == [("0001",)]
    Database.open(f"sqlite:///{sqlite_file}").close()
    assert rows(sqlite_file, "SELECT version_num FROM alembic_version") == [(f"{SCHEMA:04}",)]
    assert rows(sqlite_file, "SELECT turn FROM requests") == []


async def test_an_erasure_killed_before_the_journal_is_emptied_is_finished_at_the_next_start(
    start: Start, sqlite_file: Path
) -> None:
    with start("erase") as process:
        assert process.wait() == -signal.SIGKILL
    assert "transom.db-wal" in holding(sqlite_file.parent, b"canary")
    store = SqlStore.open(f"sqlite:///{sqlite_file}")
    assert holding(sqlite_file.parent, b"canary") == []
    assert (await store.stats())["sessions"] == 0
    await store.close()


def test_a_second_process_is_refused_and_the_first_goes_on(start: Start, sqlite_file: Path) -> None:
    with start("turns", "1") as first:
        assert first.stdout is not None
        assert first.stdout.readline()
        with pytest.raises(LockedByProcess, match="another process has this SQLite database open"):
            Database.open(f"sqlite:///{sqlite_file}")
        assert first.stdout.readline()
        first.kill()
    Database.open(f"sqlite:///{sqlite_file}").close()
    assert sqlite_file.stat().st_mode & 0o077 == 0
