from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.pool import NullPool

from transom.storage.database import SCHEMA, Database
from transom.storage.migrations.run import migration_config, upgrade
from transom.storage.schema import metadata


def test_the_newest_migration_is_the_one_the_program_counts_on() -> None:
    scripts = ScriptDirectory.from_config(migration_config())
    assert scripts.get_heads() == [f"{SCHEMA:04}"]


def test_migrations_make_the_tables_that_the_program_uses(url: str) -> None:
    with _begun(url) as connection:
        upgrade(connection)
        differences: list[Any] = compare_metadata(MigrationContext.configure(connection), metadata)
    assert differences == []


def test_a_new_database_is_as_all_migrations_leave_it(url: str) -> None:
    Database.open(url).close()
    with _begun(url) as connection:
        created = _described(connection)
        connection.execute(text("DELETE FROM meta WHERE key = 'secret'"))
        created_rows = _rows(connection)
        for table in (*reversed(metadata.sorted_tables), "alembic_version"):
            connection.execute(text(f"DROP TABLE {table}"))
        upgrade(connection)
        assert _described(connection) == created
        assert _rows(connection) == created_rows


def test_an_older_database_is_brought_up_to_date_and_keeps_its_secret(url: str) -> None:
    database = Database.open(url)
    database.close()
    with _begun(url) as connection:
        newest = _described(connection), _rows(connection)
        connection.execute(text("ALTER TABLE requests DROP COLUMN turn"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    newer = Database.open(url)
    newer.close()
    assert newer.secret == database.secret
    with _begun(url) as connection:
        assert (_described(connection), _rows(connection)) == newest


def _begun(url: str) -> Any:
    return create_engine(make_url(url.replace("+aiosqlite", "")), poolclass=NullPool).begin()


def _described(connection: Connection) -> dict[str, Any]:
    """Return all that the database says of its tables: columns in order, keys, constraints, indexes and options."""
    found = inspect(connection)
    tables = {
        name: {
            "columns": [{**column, "type": repr(column["type"])} for column in found.get_columns(name)],
            "key": found.get_pk_constraint(name),
            "references": found.get_foreign_keys(name),
            "unique": sorted(found.get_unique_constraints(name), key=str),
            "indexes": sorted(map(_index, found.get_indexes(name))),
        }
        for name in found.get_table_names()
    }
    if connection.dialect.name == "sqlite":
        for row in connection.execute(text("PRAGMA table_list")):
            tables.setdefault(row.name, {})["without rowid"] = row.wr
    return tables


def _index(found: Any) -> str:
    options = {name: str(option) for name, option in found["dialect_options"].items()}
    return f"{found['name']} on {found['column_names']}, unique: {found['unique']}, {options}"


def _rows(connection: Connection) -> list[tuple[Any, ...]]:
    versions = connection.execute(text("SELECT version_num FROM alembic_version"))
    return [tuple(row) for row in (*versions, *connection.execute(text("SELECT key, value FROM meta")))]
