import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from transom.storage.database import Database
from transom.storage.store import CannotOpen, Corrupt, LockedByProcess, NotADatabase, SchemaTooNew, StorageError


def refusal(url: str, **named: object) -> StorageError:
    with pytest.raises(CannotOpen) as caught:
        Database.open(url, **named)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert "/" not in str(caught.value)
    return caught.value


def execute(url: str, *statements: str) -> None:
    """Change a database behind the program's back."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        with sqlite3.connect(str(parsed.database)) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
        return
    with psycopg.connect(parsed.set(drivername="postgresql").render_as_string(hide_password=False)) as server:
        for statement in statements:
            server.execute(statement)


def test_the_secret_is_made_once(url: str) -> None:
    secrets = set()
    for _ in range(2):
        opened = Database.open(url)
        secrets.add(opened.secret)
        opened.close()
    assert [len(secret) for secret in secrets] == [32]


def test_workers_that_start_at_once_migrate_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(Database.open, [postgres_url] * 4))
    assert len({database.secret for database in opened}) == 1


def test_a_newer_schema_that_says_so_is_refused(url: str) -> None:
    Database.open(url).close()
    execute(url, "UPDATE alembic_version SET version_num = '0099'")
    Database.open(url).close()
    execute(url, "UPDATE meta SET value = '99' WHERE key = 'readable_from'")
    assert type(refusal(url)) is SchemaTooNew


def test_another_program_s_tables_are_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE sessions (theirs TEXT)")
    assert type(refusal(url)) is NotADatabase
    execute(url, "SELECT theirs FROM sessions")


def test_a_postgresql_schema_may_hold_other_tables(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE others (theirs TEXT)")
    Database.open(postgres_url).close()


def test_another_program_s_file_stays_byte_for_byte(sqlite_file: Path) -> None:
    execute(f"sqlite:///{sqlite_file}", "CREATE TABLE theirs (x)")
    before = sqlite_file.read_bytes()
    assert type(refusal(f"sqlite:///{sqlite_file}")) is NotADatabase
    assert sqlite_file.read_bytes() == before


def test_what_is_no_database_stays_byte_for_byte(sqlite_file: Path) -> None:
    sqlite_file.write_bytes(b"a diary, not a database\n" * 100)
    assert type(refusal(f"sqlite:///{sqlite_file}")) is NotADatabase
    assert sqlite_file.read_bytes() == b"a diary, not a database\n" * 100


def test_a_damaged_file_is_refused(sqlite_file: Path) -> None:
    url = f"sqlite:///{sqlite_file}"
    Database.open(url).close()
    raw = bytearray(sqlite_file.read_bytes())
    raw[100:4096] = b"\xff" * 3996
    sqlite_file.write_bytes(raw)
    assert type(refusal(url)) is Corrupt


def test_one_file_is_one_process_by_whatever_name(sqlite_file: Path) -> None:
    first = Database.open(f"sqlite+aiosqlite:///{sqlite_file}")
    alias = sqlite_file.with_name("alias.db")
    alias.symlink_to(sqlite_file)
    for name in (sqlite_file, alias):
        assert type(refusal(f"sqlite:///{name}")) is LockedByProcess
    first.close()
    first.close()
    Database.open(f"sqlite:///{alias}").close()


def test_a_refused_database_is_not_kept_locked(sqlite_file: Path) -> None:
    sqlite_file.write_bytes(b"nonsense" * 1000)
    refusal(f"sqlite:///{sqlite_file}")
    sqlite_file.unlink()
    Database.open(f"sqlite:///{sqlite_file}").close()


def test_a_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    assert "lock file" in str(refusal(f"sqlite:///{tmp_path}/missing/transom.db"))
    (tmp_path / "folder").mkdir()
    assert "cannot be opened for writing" in str(refusal(f"sqlite:///{tmp_path}/folder"))


@pytest.mark.parametrize("kind", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_file_locked_by_a_stranger_is_refused_after_the_deadline(sqlite_file: Path, kind: str) -> None:
    with sqlite3.connect(sqlite_file, isolation_level=None) as stranger:
        stranger.execute(f"BEGIN {kind}")
        assert "locked" in str(refusal(f"sqlite:///{sqlite_file}", timeout_s=0.05))
    stranger.close()


@pytest.mark.parametrize("url", ["mysql://localhost/x", "no url", "sqlite://", "sqlite+aiosqlite:///:memory:"])
def test_urls_that_cannot_work_are_refused(url: str) -> None:
    refusal(url)


def test_a_server_that_is_not_there_is_refused_without_its_address() -> None:
    assert "connection lost" in str(refusal("postgresql+psycopg://user:password@127.0.0.1:1/x", timeout_s=0.1))


def test_an_unknown_synchronous_is_refused(sqlite_file: Path) -> None:
    refusal(f"sqlite:///{sqlite_file}", synchronous="off; DROP TABLE messages")


@pytest.mark.parametrize(("word", "level"), [("normal", 1), ("full", 2)])
def test_synchronous_is_as_configured(sqlite_file: Path, word: str, level: int) -> None:
    database = Database.open(f"sqlite:///{sqlite_file}", synchronous=word)
    connection = database.driver.connect(read_only=False)
    cursor = connection.cursor()
    pragmas = {"synchronous": level, "journal_mode": "wal", "secure_delete": 1, "foreign_keys": 1}
    for pragma, value in pragmas.items():
        cursor.execute(f"PRAGMA {pragma}")
        assert cursor.fetchone() == (value,)
    connection.close()
    database.close()
