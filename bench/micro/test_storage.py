"""What the database costs: a turn's rows committed, alone and with others, and a known thread looked up."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import texts
from tests.storage.talk import Talk
from transom.storage.rows import Batch
from transom.storage.sql_store import SqlStore

TURN = [texts.text(140, 1), texts.text(60, 2)]
GROUP = 16
THREAD = [texts.text(100, seed) for seed in range(1_000)]


@pytest.fixture
def store(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> Iterator[SqlStore]:
    """Open a database of its own on this machine's disk, as the proxy does by default."""
    store = SqlStore.open(f"sqlite+aiosqlite:///{tmp_path}/bench.db")
    yield store
    loop.run_until_complete(store.close())


def _turn(store: SqlStore) -> Batch:
    """Return what one request of a new session writes."""
    talk = Talk(store)
    batch: Batch = talk.batch(TURN)
    batch.requests.append(talk.request(TURN))
    return batch


@pytest.mark.parametrize("batches", [1, GROUP], ids=["one", "16 at once"])
def test_commit_a_turn(
    benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, store: SqlStore, batches: int
) -> None:
    async def commit(made: list[Batch]) -> None:
        await asyncio.gather(*(store.write(batch) for batch in made))

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda made: loop.run_until_complete(commit(made)),
        setup=lambda: (([_turn(store) for _ in range(batches)],), {}),
        rounds=300,
        warmup_rounds=20,
    )


def test_load_a_thread(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, store: SqlStore) -> None:
    """A thread of 1,000 messages, as its session is looked up after a restart."""
    talk = Talk(store)

    async def stored() -> None:
        await store.write(talk.batch(THREAD))

    loop.run_until_complete(stored())
    ids = talk.ids(THREAD)
    loaded = benchmark(lambda: loop.run_until_complete(store.load(talk.id, ids)))
    assert len(loaded.known) == len(THREAD)
