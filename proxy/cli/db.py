"""`transom db`: migrates, measures and cleans the database that a configuration names, without serving.

A SQLite file belongs to one process: while the proxy runs, its own metrics, retention and admin API do the same.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from transom.proxy.cli.source import find_source, let_import_beside
from transom.proxy.config.settings import Settings, compile_settings
from transom.storage.database import SCHEMA
from transom.storage.sql_store import SqlStore
from transom.storage.store import RetentionResult, StorageError

T = TypeVar("T")
PATIENCE_S = 600.0
"""Nobody waits for an answer meanwhile, and a large table takes its time."""


def upgrade(path: Path | None) -> int:
    """Bring the schema up to date, as the start of the proxy does; return 0, or 1 where that cannot be done."""

    async def work(_store: SqlStore, _settings: Settings) -> str:
        return f"the database's schema is number {SCHEMA}, the newest this program knows\n"

    return _with_store(path, work)


def stats(path: Path | None, *, as_json: bool) -> int:
    """Print the number of rows of each table and the size in bytes; return 0, or 1 where that cannot be done."""

    async def work(store: SqlStore, _settings: Settings) -> str:
        found = await store.stats()
        if as_json:
            return msgspec.json.encode(found).decode() + "\n"
        width = max(map(len, found))
        return "".join(f"{name:<{width}}  {number:>15,}\n" for name, number in found.items())

    return _with_store(path, work)


def retain(path: Path | None, *, now: bool) -> int:
    """Erase the sessions whose time is over; return 0, or 1 where that waits for `now` or cannot be done."""
    waits = False

    async def work(store: SqlStore, settings: Settings) -> str:
        nonlocal waits
        days = settings.config.storage.retention_days
        tenants = {name: tenant.retention_days for name, tenant in settings.tenants.items()}
        result = await store.retain(time.time(), days, tenants, force=now)
        waits = result.waits
        return _told(result)

    return _with_store(path, work) or int(waits)


def _told(result: RetentionResult) -> str:
    if result.waits:
        return (
            f"{result.due:,} of {result.sessions:,} sessions are due, more than half: nothing was erased. "
            "If this machine's clock is right, --now erases them\n"
        )
    return f"{len(result.erased):,} of {result.sessions:,} sessions erased\n"


def _with_store(path: Path | None, work: Callable[[SqlStore, Settings], Awaitable[str]]) -> int:
    """Open the configured database, do the work and print what it says.

    Raises ConfigError where the configuration is not valid.
    """
    source = find_source(path)
    let_import_beside(source)
    settings = compile_settings(source.read())

    async def opened() -> str:
        storage = settings.config.storage
        store = SqlStore.open(storage.url, synchronous=storage.synchronous, timeout_s=PATIENCE_S)
        try:
            return await work(store, settings)
        finally:
            await store.close()

    try:
        sys.stdout.write(asyncio.run(opened()))
    except StorageError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
