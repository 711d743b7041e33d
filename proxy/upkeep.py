"""What is done now and then beside the requests: erasing what is too old, and measuring what is stored."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from transom.proxy.config.settings import Settings
from transom.proxy.metrics import Metrics
from transom.storage.store import StorageError, Store

RETENTION_EVERY_S = 3_600.0
STATS_EVERY_S = 60.0
STALE_S = 5.0  # a scrape measures anew after this long

log = structlog.get_logger("transom.upkeep")


class Upkeep:
    """Runs until told to stop; a storage that fails is tried again at the next time."""

    def __init__(
        self, store: Store, settings: Callable[[], Settings], metrics: Metrics, forget: Callable[[bytes], None]
    ) -> None:
        self._store, self._settings, self.metrics, self._forget = store, settings, metrics, forget
        self._measured_at = float("-inf")
        self._waiting = False  # a run that would erase most was put off once

    async def run(self, stop: asyncio.Event) -> None:
        """Erase what is due at the start and hourly; measure every minute."""
        due = time.monotonic()
        while not stop.is_set():
            with suppress(StorageError):
                if time.monotonic() >= due:
                    due = time.monotonic() + RETENTION_EVERY_S
                    await self._retain()
                await self.measure()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), STATS_EVERY_S)

    async def measure(self) -> None:
        """Bring the gauges up to date, unless they were a moment ago."""
        now = time.monotonic()
        if now - self._measured_at >= STALE_S:
            self._measured_at = now
            stats = await self._store.stats()
            self.metrics.stored(stats.get("sessions", 0), stats.get("bytes", 0))

    async def _retain(self) -> None:
        settings = self._settings()
        tenants = {name: t.retention_days for name, t in settings.tenants.items() if t.retention_days is not None}
        result = await self._store.retain(
            time.time(), settings.config.storage.retention_days, tenants, force=self._waiting
        )
        self._waiting = result.waits
        for session in result.erased:
            self._forget(session)
        if result.waits:
            log.warning("retention would erase most sessions and waits an hour", due=result.due, of=result.sessions)
        elif result.erased:
            log.info("sessions erased after their time", erased=len(result.erased))
