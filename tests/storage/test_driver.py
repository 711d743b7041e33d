from dataclasses import dataclass

from sqlalchemy import Integer, bindparam, column, literal_column, select, table
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite

from transom.storage.driver import DriverFault, Fault, compile_statement, storage_error
from transom.storage.hex_type import Hex
from transom.storage.store import CannotOpen, Corrupt, MissingParent, NotADatabase, StorageTimeout

NUMBERS = table("numbers", column("one", Integer), column("two", Integer))


@dataclass
class Row:
    one: int | bytes | None
    two: int


def test_parameters_come_in_the_order_of_the_text() -> None:
    query = select(NUMBERS.c.one).where(NUMBERS.c.two == bindparam("two"), NUMBERS.c.one == bindparam("one"))
    compiled = compile_statement(query, sqlite(paramstyle="qmark"))
    assert compiled.names == ("two", "one")
    assert compiled.bind({"one": 1, "two": 2}) == [2, 1]
    assert compiled.binder()([Row(1, 2), Row(3, 4)]) == [(2, 1), (4, 3)]


def test_bytes_are_written_as_hex_where_the_column_holds_that() -> None:
    one = bindparam("one", type_=Hex)
    query = select(NUMBERS.c.one).where(NUMBERS.c.two == bindparam("two"), NUMBERS.c.two == one, NUMBERS.c.one == one)
    compiled = compile_statement(query, sqlite(paramstyle="qmark"))
    assert compiled.bind({"one": b"\xab", "two": 2}) == [2, "ab", "ab"]
    assert compiled.binder()([Row(b"\xab", 2), Row(None, 4)]) == [(2, "ab", "ab"), (4, None, None)]
    assert compiled.binder()([Row(b"", 6)]) == [(6, "", "")]


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
