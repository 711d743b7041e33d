"""Runs the migrations on an open connection, without an ini file; the caller holds the lock and the transaction."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def migration_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for this folder, wherever the package is installed."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring the schema up to the newest migration; nothing is committed here."""
    command.upgrade(migration_config(connection), "head")
