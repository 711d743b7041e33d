"""Retention waits once where it would erase most, and a store that fails is asked again later."""

import asyncio
from typing import Any, cast

from transom.proxy.config.load import from_mapping
from transom.proxy.config.settings import compile_settings
from transom.proxy.metrics import Metrics
from transom.proxy.upkeep import Upkeep
from transom.storage.store import RetentionResult, StorageError, Store


class Retaining:
    """A store of which only retention and figures are asked."""

    def __init__(self, outcomes: list[RetentionResult | StorageError]) -> None:
        self._outcomes = outcomes
        self.forced: list[bool] = []

    async def retain(self, now: float, days: float | None, tenants: object, *, force: bool) -> RetentionResult:
        self.forced.append(force)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, StorageError):
            raise outcome
        return outcome

    async def stats(self) -> dict[str, int]:
        return {"sessions": 1, "bytes": 2}


async def run(store: Retaining, forgotten: list[bytes], monkeypatch: Any) -> None:
    monkeypatch.setattr("transom.proxy.upkeep.RETENTION_EVERY_S", 0.0)
    monkeypatch.setattr("transom.proxy.upkeep.STATS_EVERY_S", 0.001)
    settings = compile_settings(from_mapping({"storage": {"retention_days": 30}}))
    stop, rounds = asyncio.Event(), len(store._outcomes)
    upkeep = Upkeep(cast("Store", store), lambda: settings, Metrics(), forgotten.append)
    task = asyncio.create_task(upkeep.run(stop))
    while len(store.forced) < rounds:
        await asyncio.sleep(0.001)
    stop.set()
    await task


async def test_a_run_that_would_erase_most_waits_for_the_next(monkeypatch: Any) -> None:
    store = Retaining([RetentionResult(200, 150, [], True), RetentionResult(200, 150, [b"a", b"b"], False)])
    forgotten: list[bytes] = []
    await run(store, forgotten, monkeypatch)
    assert store.forced == [False, True]
    assert forgotten == [b"a", b"b"]


async def test_a_store_that_fails_is_asked_again(monkeypatch: Any) -> None:
    store = Retaining([StorageError("retain"), RetentionResult(1, 0, [], False)])
    await run(store, [], monkeypatch)
    assert store.forced == [False, False]
