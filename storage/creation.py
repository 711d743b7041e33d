"""Makes the tables of a new database at once, as all migrations would have left them; knows no migration.

A database that is new needs no history: Alembic, a quarter of a second and 5 MB, is loaded only where there is one.
"""

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table

from transom.storage.schema import COMPLETED, completions, meta, metadata

version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Alembic's own table, as Alembic makes it: the last migration that a database has seen."""


def create(connection: Connection, *, schema: int, readable_from: int) -> None:
    """Create every table and note the newest migration; nothing is committed here."""
    # An index that names both dialects would load both: 2 MB.
    completions.dialect_kwargs[f"{connection.dialect.name}_where"] = COMPLETED
    metadata.create_all(connection, checkfirst=False)
    version.create(connection, checkfirst=False)
    connection.execute(version.insert().values(version_num=f"{schema:04}"))
    connection.execute(meta.insert().values(key="readable_from", value=str(readable_from)))
