"""Inserts that know ON CONFLICT, which SQL has no common words for; knows no statement."""

from importlib import import_module
from typing import Any

from sqlalchemy import Table
from sqlalchemy.engine import Dialect


def insert(table: Table, dialect: Dialect) -> Any:
    """Return an insert in the dialect's own flavour; those of other databases, 2 MB, are not loaded."""
    return import_module(f"sqlalchemy.dialects.{dialect.name}").insert(table)
