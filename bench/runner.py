"""Runs scenarios on servers: each scenario on each server anew, with a model server and a database of its own."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from bench import servers
from bench.client import Client, Upstream, http_session
from bench.measure import Bounds, Figures, Run, median
from bench.report import DIRECT, RELAY, Results
from bench.scenarios.catalogue import SCENARIOS, title
from bench.servers import Cores, Server
from bench.upstream import Pace

TRANSOM = "transom"
MODEL_PORT = 9100

Starting = AbstractContextManager[tuple[Server, str]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run.

    `targets` are names and URLs, `model_port` is where they find the model server, `only` are the servers wanted (none:
    all), `transom` is how Python is to run Transom.
    """

    scenarios: list[str]
    repeat: int
    bounds: Bounds
    targets: list[tuple[str, str]]
    model_port: int
    only: list[str]
    transom: list[str]


async def measure(plan: Plan, say: Callable[[str], None]) -> Results:
    """Run the plan, saying what is under way.

    Raises:
        NotRunning: a server did not start (in an ExceptionGroup or alone).
        GaveUp: requests failed (in an ExceptionGroup or alone).
    """
    cores = Cores.of_this_machine()
    results = Results(pinned=bool(cores.server), load_before=os.getloadavg()[0])
    if cores.others:
        psutil.Process().cpu_affinity(cores.others)
    for scenario in plan.scenarios:
        results.titles[scenario] = title(scenario)
        repeats: dict[str, list[dict[str, Figures]]] = {}
        for number in range(1, plan.repeat + 1):
            with TemporaryDirectory(prefix="transom-bench-") as folder:
                for name, starting in _servers(plan, Path(folder), cores):
                    say(f"{scenario} {name}" + (f" ({number} of {plan.repeat})" if plan.repeat > 1 else ""))
                    repeats.setdefault(name, []).append(await _one(plan.bounds, scenario, starting, results))
        for name, runs in repeats.items():
            results.add(scenario, name, median(runs))
    return results


def _servers(plan: Plan, folder: Path, cores: Cores) -> Iterator[tuple[str, Starting]]:
    """Yield each server's name and how it is started, the model server with it."""
    port = plan.model_port if plan.targets else servers.free_port()

    @contextmanager
    def behind(name: str, url: str) -> Iterator[tuple[Server, str]]:
        with (
            servers.upstream(port, folder, cores) as upstream,
            _start(plan, name, url, upstream, (folder, cores)) as server,
        ):
            yield server, upstream

    for name, url in [(DIRECT, ""), (RELAY, ""), (TRANSOM, ""), *plan.targets]:
        if not plan.only or name in plan.only:
            yield name, behind(name, url)


def _start(plan: Plan, name: str, url: str, upstream: str, where: tuple[Path, Cores]) -> AbstractContextManager[Server]:
    if url:
        return nullcontext(servers.elsewhere(name, url))
    if name == DIRECT:
        return nullcontext(Server(name, upstream))
    if name == RELAY:
        return servers.relay(upstream, *where)
    return servers.transom(upstream, *where, plan.transom)


async def _one(bounds: Bounds, scenario: str, starting: Starting, results: Results) -> dict[str, Figures]:
    with starting as (server, upstream_url):
        async with http_session() as http:
            upstream = Upstream(upstream_url, http)
            await upstream.set(Pace())
            run = Run(server, Client(server.url, http), upstream, bounds)
            await SCENARIOS[scenario](run)
        if server.start_s is not None:
            results.starts.setdefault(server.name, []).append(server.start_s)
    return run.phases
