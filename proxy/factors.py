"""Learn how many of its own tokens a model counts for one of ours, from the usage it reports.

The factor of a model is the median of its last 50 ratios of reported prompt tokens to our o200k count, clamped. A
report far below the estimate is not learned from: the provider has silently read less than it was sent. Nor does a
prompt that is mostly tools lower the factor: providers write schemas in shorter ways of their own.
"""

import asyncio
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
MOST_OVERHEAD = 0.25  # share of tools and schemas in a prompt that says how a model counts texts
NEAR = 0.9  # of the estimate: what a prompt with more of them must reach to be learned from
EVERY_S = 10.0  # reads from, and writes to, the database
LOG_EVERY_S = 3_600.0
MOST_MODELS = 1_000  # any name may pass through `*`

log = structlog.get_logger("transom.factors")


class Factors:
    """The factors of all models; shared through the database, read and written at most every ten seconds."""

    def __init__(self, store: Store, *, shared: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._shared, self._clock = store, shared, clock
        self._ratios: dict[str, list[float]] = {}
        self._factors: dict[str, float] = {}
        self._unwritten: dict[str, list[float]] = {}  # the newest ratios, which no other process knows of yet
        self._next_read = float("-inf")
        self._written_at: dict[str, float] = {}
        self._logged_at: dict[str, float] = {}

    def of(self, model: str) -> float:
        """Return a model's tokens per o200k token; 1 while nothing is known."""
        return self._factors.get(model, 1.0)

    async def refresh(self) -> None:
        """Read what is stored, if it is time: at the start, and now and then where other processes learn too."""
        now = self._clock()
        if now < self._next_read:
            return
        self._next_read = now + EVERY_S
        try:
            rows = await self._store.factors()
        except StorageError:
            return
        if not self._shared:
            self._next_read = float("inf")
        for model, row in rows.items():
            self._set(model, [*row.ratios, *self._unwritten.get(model, ())])

    def learn(self, model: str, reported: int, counted: int, overhead: int = 0) -> bool:
        """Take one report into account; tell whether the provider seems to have read less than it was sent.

        `counted` is our count of the whole prompt, `overhead` the part of it that tools and schemas make up.
        """
        if counted < SMALLEST_PROMPT:
            return False
        ratio, factor = reported / counted, self.of(model)
        mostly_tools = overhead > MOST_OVERHEAD * counted
        if reported < TRUNCATED_BELOW * factor * (counted - overhead if mostly_tools else counted):
            self._log_truncation(model, reported, counted)
            return True
        if mostly_tools and ratio < NEAR * factor:
            return False
        self._unwritten.setdefault(model, []).append(ratio)
        self._set(model, [*self._ratios.get(model, []), ratio])
        self._write(model)
        return False

    def _set(self, model: str, ratios: list[float]) -> None:
        self._ratios[model] = ratios[-SAMPLES:]
        if ratios:
            self._factors[model] = min(max(median(ratios[-SAMPLES:]), LOWEST), HIGHEST)
        if len(self._ratios) > MOST_MODELS:
            oldest = next(iter(self._ratios))
            for known in (self._ratios, self._factors, self._unwritten, self._written_at, self._logged_at):
                known.pop(oldest, None)

    def _write(self, model: str) -> None:
        now = self._clock()
        if now - self._written_at.get(model, float("-inf")) < EVERY_S:
            return
        self._written_at[model] = now
        fresh = self._unwritten.pop(model, [])
        future = self._store.write(Batch(factors=[FactorRow(model, tuple(self._ratios[model]), time.time())]))

        def written(done: "asyncio.Future[None]") -> None:
            if done.cancelled() or done.exception() is not None:
                self._unwritten[model] = [*fresh, *self._unwritten.get(model, ())][-SAMPLES:]

        future.add_done_callback(written)

    def _log_truncation(self, model: str, reported: int, counted: int) -> None:
        now = self._clock()
        if now - self._logged_at.get(model, float("-inf")) >= LOG_EVERY_S:
            self._logged_at[model] = now
            log.warning("the provider seems to read less than it is sent", model=model, read=reported, sent=counted)
