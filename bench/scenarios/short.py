"""Requests of one question, each in a session of its own: what a request costs that needs no window."""

import itertools
from collections.abc import Iterator

from bench import texts
from bench.measure import Phase, Run, closed_loop
from bench.upstream import Pace

WARM = 200  # requests before the first that counts
PACED_STREAMS = 96
CHUNK_MS = 10.0

_seeds = itertools.count(1)


def _requests(*, stream: bool = False, count: int | None = None) -> Iterator[tuple[bytes, str]]:
    """Yield requests that no request before them was like."""
    for seed in itertools.islice(_seeds, count):
        yield texts.short(seed, stream=stream), f"short-{seed}"


async def _warm(run: Run, *, stream: bool) -> None:
    await closed_loop(run, Phase("warm", run.bounds.most_s), 8, _requests(stream=stream, count=WARM))


async def calls(run: Run) -> None:
    """S1: single calls, one at a time and 32 at a time."""
    await _warm(run, stream=False)
    for workers in (1, 32):
        async with run.phase(f"{workers} at a time", most_s=run.bounds.seconds) as phase:
            await closed_loop(run, phase, workers, _requests())


async def streams(run: Run) -> None:
    """S2: streams of 50 chunks, 16 at a time: 10 ms between chunks, then as fast as they go."""
    await _warm(run, stream=True)
    await run.upstream.set(Pace(chunk_ms=CHUNK_MS))
    async with run.phase("10 ms a chunk") as phase:
        await closed_loop(run, phase, 16, _requests(stream=True, count=PACED_STREAMS))
    await run.upstream.set(Pace())
    async with run.phase("no pause", most_s=run.bounds.seconds) as phase:
        await closed_loop(run, phase, 16, _requests(stream=True))
