from dataclasses import dataclass

from sqlalchemy import Integer, bindparam, column, literal_column, select, table
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite

from transom.storage.driver import DriverFault, Fault, compile_statement, storage_error
from transom.storage.store import CannotOpen, Corrupt, MissingParent, NotADatabase, StorageTimeout

NUMBERS = table("numbers", column("one", Integer), column("two", Integer))


@dataclass
class Row:
    one: int
    two: int


def test_parameters_come_in_the_order_of_the_text() -> None:
    query = select(NUMBERS.c.one).where(NUMBERS.c.two == bindparam("two"), NUMBERS.c.one == bindparam("one"))
    compiled = compile_statement(query, sqlite(paramstyle="qmark"))
    assert compiled.names == ("two", "one")
    assert compiled.bind({"one": 1, "two": 2}) == (2, 1)
    assert compiled.binder()(Row(1, 2)) == (2, 1)


def test_one_parameter_is_a_tuple_too() -> None:
    compiled = compile_statement(select(NUMBERS.c.one).where(NUMBERS.c.two == bindparam("two")), sqlite())
    assert compiled.binder()(Row(1, 2)) == (2,)


def test_parameters_that_the_dialect_adds_need_not_be_given() -> None:
    compiled = compile_statement(select(NUMBERS.c.one).limit(literal_column("1")), sqlite(paramstyle="qmark"))
    assert len(compiled.bind({})) == compiled.sql.count("?")


def test_faults_become_the_callers_errors() -> None:
    assert type(storage_error("load", Fault.BUSY)) is StorageTimeout
    assert type(storage_error("load", Fault.PARENT)) is MissingParent
    assert type(storage_error("load", Fault.CORRUPT)) is Corrupt
    assert type(storage_error("load", Fault.NOT_A_DATABASE)) is NotADatabase
    assert type(storage_error("load", Fault.CANNOT_OPEN)) is CannotOpen
    assert str(storage_error("load", Fault.FULL)) == "storage: load: disk full"
    assert DriverFault(Fault.REPLACED).fault is Fault.REPLACED
