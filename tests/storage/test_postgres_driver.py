import psycopg
import pytest
from psycopg import errors
from sqlalchemy import make_url

from transom.storage.driver import DriverFault, Fault
from transom.storage.postgres_driver import PostgresDriver


@pytest.fixture
def driver(postgres_url: str) -> PostgresDriver:
    return PostgresDriver(make_url(postgres_url), timeout_s=0.5)


def test_a_statement_ends_at_the_deadline(driver: PostgresDriver) -> None:
    connection = driver.connect(read_only=True)
    with pytest.raises(psycopg.Error) as caught:
        connection.cursor().execute("SELECT pg_sleep(60)")
    assert driver.fault(caught.value, connection) is Fault.BUSY
    connection.close()


def test_longer_work_does_not(driver: PostgresDriver) -> None:
    connection = driver.connect(read_only=False)
    cursor = connection.cursor()
    for statement in (driver.begin, *driver.unhurried, "SELECT pg_sleep(0.7)", "COMMIT"):
        cursor.execute(statement)
    connection.close()


def test_errors_are_told_apart(driver: PostgresDriver) -> None:
    connection = driver.connect(read_only=False)
    assert driver.fault(errors.ForeignKeyViolation(), connection) is Fault.PARENT
    assert driver.fault(errors.NotNullViolation(), connection) is Fault.VALUE
    assert driver.fault(errors.DiskFull(), connection) is Fault.FULL
    assert driver.fault(errors.DeadlockDetected(), connection) is Fault.CONFLICT
    assert driver.fault(errors.SerializationFailure(), connection) is Fault.CONFLICT
    assert driver.fault(errors.UndefinedTable(), connection) is Fault.OTHER
    assert driver.fault(psycopg.DataError("NUL"), connection) is Fault.VALUE
    assert driver.fault(psycopg.OperationalError("refused"), None) is Fault.LOST
    assert driver.fault(errors.DiskFull(), None) is Fault.FULL
    assert driver.fault(DriverFault(Fault.OTHER), connection) is Fault.OTHER
    assert driver.fault(OverflowError(), connection) is Fault.VALUE
    assert driver.fault(KeyError("mistake"), connection) is Fault.OTHER
    connection.close()
    assert driver.fault(psycopg.OperationalError("closed"), connection) is Fault.LOST
    driver.rollback(connection)


def test_a_connection_that_cannot_be_set_up_is_closed(driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[None] = []
    monkeypatch.setattr(psycopg.Connection, "execute", lambda self, *_: 1 // 0)
    close = psycopg.Connection.close
    monkeypatch.setattr(psycopg.Connection, "close", lambda self: closed.append(close(self)))
    with pytest.raises(ZeroDivisionError):
        driver.connect(read_only=False)
    assert closed == [None]
