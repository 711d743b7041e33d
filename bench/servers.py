"""Starts and stops what is measured, each server on a core of its own, and reads what it uses of the machine."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).parents[1]
START_S = 60.0
STOP_S = 15.0
MIB = 1_048_576
UNWANTED = ("TRANSOM__", "PYTHONDONTWRITEBYTECODE")  # would change the configuration; would compile at each start

CONFIG = """\
storage: {{url: "sqlite+aiosqlite:///{folder}/transom.db"}}
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "{upstream}", api_key: sk-bench}}
  - model_name: bench-summary
    litellm_params: {{model: openai/bench-summary, api_base: "{upstream}", api_key: sk-bench}}
policies:
  default: {{strategy: context_window, max_tokens: 4000, summary_model: bench-summary, max_tool_calls_per_turn: 100}}
"""


class NotRunning(Exception):
    """A server did not start, or is not where it was said to be; the text is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has used of the processor since it began, and of memory now."""

    cpu_s: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server to be measured. Without a process it is the model's server itself: there is nothing to read of it.

    `start_s` is how long it took from its command to its first answer, for those that were started here.
    """

    name: str
    url: str
    process: psutil.Process | None = None
    start_s: float | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    def usage(self) -> Usage:
        """Read the usage of the process and its children; nothing without a process."""
        if self.process is None:
            return Usage(0, 0)
        times, rss = [], 0
        for process in (self.process, *self.process.children(recursive=True)):
            with process.oneshot():
                times.append(process.cpu_times())
                rss += process.memory_info().rss
        return Usage(sum(t.user + t.system for t in times), rss / MIB)


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where: the measured server has a core of its own if there are two; empty lists pin nothing."""

    server: list[int]
    others: list[int]

    @classmethod
    def of_this_machine(cls) -> "Cores":
        """Share out the cores this process may use."""
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return cls(allowed[:1], allowed[1:]) if len(allowed) > 1 else cls([], [])


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def process(arguments: Sequence[str], log: Path, cores: list[int], stop: signal.Signals) -> Iterator[psutil.Process]:
    """Run this Python with arguments for as long as the block takes; `stop` is the signal that ends it in order."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(UNWANTED)}
    with log.open("wb") as output:
        running = psutil.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if cores:
            running.cpu_affinity(cores)
        yield running
    finally:
        if running.is_running():
            running.send_signal(stop)
        try:
            running.wait(STOP_S)
        except psutil.TimeoutExpired:
            running.kill()
            running.wait()


def wait_until_ready(running: psutil.Process, port: int, path: str, log: Path) -> None:
    """Ask until an answer comes that is no failure. Raises NotRunning with the end of the server's log."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and running.is_running() and running.status() != psutil.STATUS_ZOMBIE:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            if connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR:
                return
        except OSError:
            time.sleep(0.002)
        finally:
            connection.close()
    raise NotRunning(f"a server did not start; the end of its log:\n{log.read_text('utf-8', 'replace')[-1500:]}")


@contextmanager
def upstream(port: int, folder: Path, cores: Cores) -> Iterator[str]:
    """Run the made-up model server and yield its base URL. Raises NotRunning."""
    log = folder / "upstream.log"
    with socket.socket() as asking:
        if asking.connect_ex(("127.0.0.1", port)) == 0:
            raise NotRunning(f"the model server cannot listen: somebody else does on port {port}")
    with process(["-m", "bench.upstream", str(port)], log, cores.others, signal.SIGTERM) as running:
        wait_until_ready(running, port, "/", log)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def relay(upstream_url: str, folder: Path, cores: Cores) -> Iterator[Server]:
    """Run the relay that does nothing."""
    arguments = ["-m", "bench.relay", upstream_url]
    with _started("relay", arguments, "/healthz", folder / "relay.log", cores, signal.SIGTERM) as server:
        yield server


@contextmanager
def transom(
    upstream_url: str, folder: Path, cores: Cores, prefix: Sequence[str] = ("-m", "transom")
) -> Iterator[Server]:
    """Run Transom with a window of 4,000 tokens, and a database that is new; `prefix` is how Python is to run it."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder=folder, upstream=upstream_url), "utf-8")
    arguments = [*prefix, "serve", "--config", str(config), "--port"]
    # SIGINT: Python ends in order after it, so that a profile is written.
    with _started("transom", arguments, "/readyz", folder / "transom.log", cores, signal.SIGINT) as server:
        yield server


@contextmanager
def _started(
    name: str, arguments: Sequence[str], ready: str, log: Path, cores: Cores, stop: signal.Signals
) -> Iterator[Server]:
    port, began = free_port(), time.perf_counter()
    with process([*arguments, str(port)], log, cores.server, stop) as running:
        wait_until_ready(running, port, ready, log)
        yield Server(name, f"http://127.0.0.1:{port}/v1", running, time.perf_counter() - began)


def elsewhere(name: str, url: str) -> Server:
    """Return a server that somebody else runs on this machine. Raises NotRunning if nobody listens there."""
    server = Server(name, url.rstrip("/"))
    _, port = server.address
    for connection in psutil.net_connections("tcp"):
        listens = connection.status == psutil.CONN_LISTEN and connection.laddr
        if listens and listens.port == port and connection.pid:
            return Server(name, server.url, psutil.Process(connection.pid))
    raise NotRunning(f"{name}: no process of yours listens on port {port}")
