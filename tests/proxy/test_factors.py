"""What a model's own token counts teach, and what they must not."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from transom.proxy.factors import EVERY_S, HIGHEST, LOG_EVERY_S, LOWEST, MOST_MODELS, SAMPLES, Factors
from transom.storage.rows import Batch, FactorRow
from transom.storage.store import StorageError


class Memory:
    """A store that knows factors alone; others may write to `rows`."""

    def __init__(self) -> None:
        self.rows: dict[str, FactorRow] = {}
        self.reads = 0
        self.broken = False

    async def factors(self) -> dict[str, FactorRow]:
        self.reads += 1
        if self.broken:
            raise StorageError("factors")
        return dict(self.rows)

    def write(self, batch: Batch) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.broken:
            future.set_exception(StorageError("write"))
        else:
            self.rows |= {row.model: row for row in batch.factors}
            future.set_result(None)
        return future


class Learning:
    """Factors on a clock of their own."""

    def __init__(self, store: Memory | None = None, *, shared: bool = False) -> None:
        self.now = 0.0
        self.store = store or Memory()
        self.factors = Factors(self.store, shared=shared, clock=lambda: self.now)  # type: ignore[arg-type]

    async def told(self, *ratios: float, model: str = "m", counted: int = 1000, **more: Any) -> list[bool]:
        """Report these ratios; return whether each was taken for a truncation."""
        await self.factors.refresh()
        found = [self.factors.learn(model, int(ratio * counted), counted, **more) for ratio in ratios]
        await asyncio.sleep(0)
        return found

    @property
    def factor(self) -> float:
        return self.factors.of("m")


def stored(*ratios: float) -> dict[str, FactorRow]:
    return {"m": FactorRow("m", ratios, 0.0)}


# ---------------------------------------------------------------------- learning
@pytest.mark.parametrize(
    ("ratios", "factor"),
    [
        ((), 1.0),
        ((1.2,), 1.2),
        ((1.0, 1.1, 3.0), 1.1),
        ((2.5, 2.5), 2.5),
        ((9.0,), HIGHEST),
        ((0.75,), LOWEST),
        ((*[2.0] * SAMPLES, *[1.5] * (SAMPLES // 2 + 1)), 1.5),
    ],
    ids=["nothing", "one", "median", "a costly tokenizer", "at most", "at least", "the newest fifty"],
)
async def test_the_factor_is_the_median_of_the_newest_ratios(ratios: Sequence[float], factor: float) -> None:
    learning = Learning()
    await learning.told(*ratios)
    assert learning.factor == pytest.approx(factor)


async def test_small_prompts_teach_nothing() -> None:
    learning = Learning()
    assert await learning.told(2.0, counted=499) == [False]
    assert learning.factor == 1.0
    await learning.told(2.0, counted=500)
    assert learning.factor == 2.0


async def test_models_do_not_learn_from_each_other() -> None:
    learning = Learning()
    await learning.told(2.0, model="other")
    assert learning.factor == 1.0


async def test_tools_that_a_provider_writes_shorter_do_not_lower_the_factor() -> None:
    learning = Learning()
    await learning.told(1.2)
    assert await learning.told(0.75, overhead=300) == [False]
    assert learning.factor == 1.2


async def test_a_costly_tokenizer_is_learned_from_prompts_full_of_tools() -> None:
    learning = Learning()
    await learning.told(2.4, 2.6, 2.5, counted=8000, overhead=3000)
    assert learning.factor == 2.5


# ---------------------------------------------------------------------- truncation
async def test_a_report_far_below_the_estimate_is_a_truncation() -> None:
    learning = Learning()
    await learning.told(2.0)
    assert await learning.told(1.39, 1.4) == [True, False]
    assert learning.factor == pytest.approx(1.7)


async def test_prompts_full_of_tools_are_truncated_where_even_the_texts_do_not_fit() -> None:
    """Texts of 700 tokens and tools of 300: less than 490 read is less than the texts alone."""
    assert await Learning().told(0.48, 0.5, overhead=300) == [True, False]


async def test_a_model_that_truncates_is_logged_once_an_hour() -> None:
    learning = Learning()
    with capture_logs() as logs:
        await learning.told(0.2, 0.2)
        assert len(logs) == 1
        learning.now = LOG_EVERY_S
        await learning.told(0.2)
    assert len(logs) == 2
    assert (logs[0]["model"], logs[0]["read"], logs[0]["sent"]) == ("m", 200, 1000)


# ---------------------------------------------------------------------- the database
async def test_what_was_learned_survives_a_restart() -> None:
    store = Memory()
    await Learning(store).told(1.5)
    restarted = Learning(store)
    await restarted.factors.refresh()
    assert restarted.factor == 1.5


async def test_writes_are_seldom_and_nothing_waits_for_ever() -> None:
    learning = Learning()
    await learning.told(1.5, 1.6, 1.7)
    assert learning.store.rows["m"].ratios == (1.5,)
    learning.now = EVERY_S
    await learning.told(1.8)
    assert learning.store.rows["m"].ratios == (1.5, 1.6, 1.7, 1.8)


async def test_a_single_process_reads_once() -> None:
    learning = Learning()
    for second in range(100):
        learning.now = float(second)
        await learning.factors.refresh()
    assert learning.store.reads == 1


async def test_processes_learn_from_each_other_every_ten_seconds() -> None:
    learning = Learning(shared=True)
    await learning.factors.refresh()
    learning.store.rows = stored(2.0)
    learning.now = EVERY_S - 0.1
    await learning.factors.refresh()
    assert learning.factor == 1.0
    learning.now = EVERY_S
    await learning.factors.refresh()
    assert learning.factor == 2.0


async def test_what_is_not_written_yet_is_not_forgotten_by_reading() -> None:
    learning = Learning(shared=True)
    await learning.told(1.0, 3.0, 3.0)  # of these the first is written
    learning.now = EVERY_S
    await learning.factors.refresh()
    assert learning.factor == 3.0


async def test_a_database_that_fails_at_the_start_costs_nothing_that_was_learned() -> None:
    store = Memory()
    store.rows, store.broken = stored(*[2.0] * 9), True
    learning = Learning(store)
    await learning.told(1.5)
    store.broken = False
    learning.now = EVERY_S
    await learning.told(1.5)
    assert store.rows["m"].ratios == (*[2.0] * 9, 1.5, 1.5)
    assert learning.factor == 2.0


async def test_names_that_pass_through_are_forgotten_the_oldest_first() -> None:
    learning = Learning()
    for number in range(MOST_MODELS + 1):
        learning.factors.learn(f"m{number}", 2000, 1000)
    assert learning.factors.of("m0") == 1.0
    assert learning.factors.of("m1") == 2.0
