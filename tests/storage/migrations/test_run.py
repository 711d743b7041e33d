from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, make_url

from transom.storage.database import SCHEMA, Database
from transom.storage.migrations.run import migration_config
from transom.storage.schema import metadata


def test_the_newest_migration_is_the_one_the_program_counts_on() -> None:
    scripts = ScriptDirectory.from_config(migration_config())
    assert scripts.get_heads() == [f"{SCHEMA:04}"]


def test_migrations_make_the_tables_that_the_program_uses(url: str) -> None:
    Database.open(url).close()
    engine = create_engine(make_url(url.replace("+aiosqlite", "")))
    with engine.connect() as connection:
        differences: list[Any] = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert differences == []
