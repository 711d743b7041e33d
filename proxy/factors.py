"""Learn how many of its own tokens a model counts for one of ours, from the usage it reports.

The factor of a model is the median of its last 50 ratios of reported prompt tokens to our o200k count, clamped. A
report far below the estimate is not learned from: the provider has silently read less than it was sent.
"""

import time
from collections.abc import Callable
from statistics import median

import structlog

from transom.storage.rows import Batch, FactorRow
from transom.storage.store import StorageError, Store

SAMPLES = 50
LOWEST, HIGHEST = 0.8, 3.0
SMALLEST_PROMPT = 500  # tokens; below it the provider's fixed overhead would be taken for a ratio
TRUNCATED_BELOW = 0.7  # of the estimate
EVERY_S = 10.0  # reads from, and writes to, the database
LOG_EVERY_S = 3_600.0

log = structlog.get_logger("transom.factors")


class Factors:
    """The factors of all models; shared through the database, read and written at most every ten seconds."""

    def __init__(self, store: Store, *, shared: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._shared, self._clock = store, shared, clock
        self._ratios: dict[str, list[float]] = {}
        self._factors: dict[str, float] = {}
        self._read_at: float | None = None
        self._written_at: dict[str, float] = {}
        self._logged_at: dict[str, float] = {}

    def of(self, model: str) -> float:
        """Return a model's tokens per o200k token; 1 while nothing is known."""
        return self._factors.get(model, 1.0)

    async def refresh(self) -> None:
        """Read what is stored, if it is time: at the start, and now and then where other processes learn too."""
        now = self._clock()
        if self._read_at is not None and (not self._shared or now - self._read_at < EVERY_S):
            return
        self._read_at = now
        try:
            rows = await self._store.factors()
        except StorageError:
            return
        for model, row in rows.items():
            self._set(model, list(row.ratios))

    def learn(self, model: str, reported: int, counted: int) -> bool:
        """Take one report into account; tell whether the provider seems to have read less than it was sent."""
        if counted < SMALLEST_PROMPT:
            return False
        ratio = reported / counted
        if ratio < TRUNCATED_BELOW * self.of(model):
            self._log_truncation(model, reported, counted)
            return True
        self._set(model, [*self._ratios.get(model, []), ratio][-SAMPLES:])
        self._write(model)
        return False

    def _set(self, model: str, ratios: list[float]) -> None:
        self._ratios[model] = ratios
        if ratios:
            self._factors[model] = min(max(median(ratios), LOWEST), HIGHEST)

    def _write(self, model: str) -> None:
        now = self._clock()
        if now - self._written_at.get(model, float("-inf")) >= EVERY_S:
            self._written_at[model] = now
            future = self._store.write(Batch(factors=[FactorRow(model, tuple(self._ratios[model]), time.time())]))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _log_truncation(self, model: str, reported: int, counted: int) -> None:
        now = self._clock()
        if now - self._logged_at.get(model, float("-inf")) >= LOG_EVERY_S:
            self._logged_at[model] = now
            log.warning("the provider seems to read less than it is sent", model=model, read=reported, sent=counted)
