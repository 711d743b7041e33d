import sqlite3
from pathlib import Path

import pytest

from transom.storage.database import Database
from transom.storage.driver import DriverFault, Fault
from transom.storage.sqlite_driver import SqliteDriver


@pytest.fixture
def driver(sqlite_file: Path) -> SqliteDriver:
    Database.open(f"sqlite:///{sqlite_file}").close()
    return SqliteDriver(sqlite_file, synchronous="normal", timeout_s=0.1)


def test_errors_are_told_apart_by_their_code(driver: SqliteDriver) -> None:
    def error(kind: type[sqlite3.Error], code: int) -> sqlite3.Error:
        made = kind("secret words")
        made.sqlite_errorcode = code
        return made

    assert driver.fault(error(sqlite3.OperationalError, sqlite3.SQLITE_BUSY_SNAPSHOT), None) is Fault.BUSY
    assert driver.fault(error(sqlite3.OperationalError, sqlite3.SQLITE_FULL), None) is Fault.FULL
    assert driver.fault(error(sqlite3.OperationalError, sqlite3.SQLITE_IOERR_FSYNC), None) is Fault.IO
    assert driver.fault(error(sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT), None) is Fault.CORRUPT
    assert driver.fault(error(sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT_UNIQUE), None) is Fault.VALUE
    assert driver.fault(error(sqlite3.IntegrityError, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY), None) is Fault.PARENT
    assert driver.fault(sqlite3.InterfaceError("no code"), None) is Fault.OTHER
    assert driver.fault(DriverFault(Fault.REPLACED), None) is Fault.REPLACED
    assert driver.fault(OverflowError(), None) is Fault.VALUE
    assert driver.fault(UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogate"), None) is Fault.VALUE
    assert driver.fault(KeyError("mistake"), None) is Fault.OTHER


def test_a_file_system_without_shared_memory_is_refused(driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rollback(sqlite3.Connection):
        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            return super().execute("SELECT 'delete'" if "journal_mode" in sql else sql)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **named: connect(path, factory=Rollback, **named))
    with pytest.raises(DriverFault) as caught:
        driver.connect(read_only=False)
    assert caught.value.fault is Fault.CANNOT_OPEN


def test_a_read_only_folder_can_still_be_read(driver: SqliteDriver) -> None:
    connection = driver.connect(read_only=True)
    cursor = connection.cursor()
    with pytest.raises(sqlite3.OperationalError) as caught:
        cursor.execute("CREATE TABLE x (y)")
    assert driver.fault(caught.value, connection) is Fault.READ_ONLY
    assert driver.size(cursor) > 0
    connection.close()


def test_a_missing_file_is_not_made_anew(driver: SqliteDriver, sqlite_file: Path) -> None:
    sqlite_file.unlink()
    with pytest.raises(DriverFault):
        driver.connect(read_only=False)
    assert not sqlite_file.exists()
