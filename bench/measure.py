"""Measures while requests run: times, the server's processor time and memory, and how long its loop was busy."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.client import Answer, Client, Failed, Upstream
from bench.servers import ROOT, Server

Figures = dict[str, float]
"""Named figures of one phase; `bench.report` says what each is. What could not be measured is not there."""

SAMPLE_S = 0.1
SETTLE_S = 0.3  # what a server does after its last answer belongs to the request
MOST_FAILURES = 20
SLOPE_REQUESTS = 1_000  # a slope of memory over fewer says nothing


class GaveUp(Exception):
    """Too many requests failed for figures to mean anything."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a run may take.

    `seconds` is for each phase that goes on for a time, `most_s` for each that has an end of its own.
    """

    seconds: float = 5
    most_s: float = 60
    sessions: int = 10_000
    minutes: float = 3


@dataclass(slots=True)
class Phase:
    """A stretch of requests that is measured as one."""

    name: str
    most_s: float
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    memory: list[tuple[int, float]] = field(default_factory=list)  # (requests so far, MiB)
    began: float = field(default_factory=time.perf_counter)

    @property
    def over(self) -> bool:
        """Tell whether its time is up."""
        return time.perf_counter() - self.began > self.most_s

    async def ask(self, client: Client, body: bytes, session: str) -> Answer | None:
        """Send a request and keep how it was answered; None if it failed. Raises GaveUp after 20 of these."""
        try:
            answer = await client.ask(body, session)
        except Failed as failure:
            self.failures.append(str(failure))
            if len(self.failures) >= MOST_FAILURES:
                raise GaveUp(f"{self.name}: {self.failures[0]}") from None
            return None
        self.answers.append(answer)
        return answer


class Run:
    """One scenario on one server."""

    def __init__(self, server: Server, client: Client, upstream: Upstream, bounds: Bounds) -> None:
        self.server, self.client, self.upstream, self.bounds = server, client, upstream, bounds
        self.phases: dict[str, Figures] = {}

    @asynccontextmanager
    async def phase(self, name: str, *, most_s: float | None = None, lag: bool = False) -> AsyncIterator[Phase]:
        """Measure what happens in the block. With `lag`, a prober asks the server meanwhile."""
        await self.upstream.seen()
        prober = await _probing(self.server) if lag and self.server.process is not None else None
        before = self.server.usage()
        phase = Phase(name, most_s or self.bounds.most_s, memory=[(0, before.rss_mib)])
        sampling = asyncio.create_task(self._sample(phase))
        try:
            yield phase
        finally:
            seconds = time.perf_counter() - phase.began
            sampling.cancel()
            worst = await _stopped(prober) if prober is not None else None
        await asyncio.sleep(SETTLE_S)
        after, seen = self.server.usage(), await self.upstream.seen()
        phase.memory.append((len(phase.answers), after.rss_mib))
        figures = times(phase.answers) | {"rps": len(phase.answers) / seconds, "failures": len(phase.failures)}
        count = max(1, len(phase.answers))
        figures |= {"upstream_kb": seen.bytes / 1000 / count, "summaries": seen.summaries}
        if self.server.process is not None:
            figures["cpu_us"] = (after.cpu_s - before.cpu_s) * 1e6 / count
            figures |= memory(phase.memory)
        if worst is not None:
            figures |= {"lag_ms": worst}
        self.phases[name] = figures

    def part(self, name: str, answers: Sequence[Answer]) -> None:
        """Add a phase that is part of one that was measured: its times only."""
        if answers:
            self.phases[name] = times(answers)

    async def _sample(self, phase: Phase) -> None:
        while self.server.process is not None:
            await asyncio.sleep(SAMPLE_S)
            phase.memory.append((len(phase.answers), self.server.usage().rss_mib))


def times(answers: Sequence[Answer]) -> Figures:
    """Return how many answers there are and how long they took."""
    if not answers:
        return {"requests": 0}
    took = sorted(answer.ms for answer in answers)
    figures = {
        "requests": float(len(took)),
        "ms": statistics.median(took),
        "p99_ms": took[len(took) * 99 // 100],
        "worst_ms": took[-1],
    }
    firsts = [answer.first_ms for answer in answers if answer.first_ms is not None]
    return figures | ({"first_ms": statistics.median(firsts)} if firsts else {})


def memory(samples: Sequence[tuple[int, float]]) -> Figures:
    """Return memory at start and end, and its slope over the second half of the requests."""
    figures = {"rss_start_mib": samples[0][1], "rss_end_mib": samples[-1][1]}
    total = samples[-1][0]
    later = [sample for sample in samples if sample[0] >= total / 2]
    if total >= SLOPE_REQUESTS and len({count for count, _ in later}) > 1:
        slope = statistics.linear_regression([c for c, _ in later], [rss for _, rss in later]).slope
        figures["slope_kib"] = slope * 1000 * 1024
    return figures


def median(repeats: Sequence[dict[str, Figures]]) -> dict[str, Figures]:
    """Return the median of every figure of every phase over repeated runs."""
    phases = dict.fromkeys(name for phases in repeats for name in phases)
    return {name: _median([phases[name] for phases in repeats if name in phases]) for name in phases}


def _median(repeats: Sequence[Figures]) -> Figures:
    names = dict.fromkeys(name for figures in repeats for name in figures)
    return {name: statistics.median(f[name] for f in repeats if name in f) for name in names}


async def closed_loop(run: Run, phase: Phase, workers: int, requests: Iterator[tuple[bytes, str]]) -> None:
    """Send requests (body and session) on so many connections at once, until there are no more or the time is up."""

    async def work() -> None:
        for body, session in requests:
            if phase.over:
                break
            await phase.ask(run.client, body, session)

    await side_by_side(workers, work)


async def side_by_side(workers: int, work: Callable[[], Awaitable[None]]) -> None:
    """Run so many of the same worker until all have ended; a failure of one ends all."""
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_awaited(work))


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _probing(server: Server) -> asyncio.subprocess.Process:
    host, port = server.address
    prober = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.probe", host, str(port)),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert prober.stdout is not None
    await prober.stdout.readline()
    return prober


async def _stopped(prober: asyncio.subprocess.Process) -> float:
    told, _ = await prober.communicate(b"")  # closes its standard input
    return float(told.split()[0])
