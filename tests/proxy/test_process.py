import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from tests.proxy.conftest import Untouched
from transom.proxy.connection import Bounds
from transom.proxy.drain import Drain
from transom.proxy.process import Server, configure

PROGRAM = Path(__file__).with_name("served_app.py")


class Program:
    """The program `served_app.py` as a process of its own."""

    def __init__(self, *, workers: int = 1, drain_s: float = 20, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, PROGRAM, "0", str(workers), str(drain_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._connections: list[http.client.HTTPConnection] = []
        self.pids: list[int] = []
        try:
            self.port, self.admin_port = map(int, self.line("ports"))
            if environment is None:
                self.pids += [int(self.line("started")[0]) for _ in range(workers)]
        except BaseException:
            self.close()
            raise

    def line(self, start: str) -> list[str]:
        """Return the words of the next line that begins so."""
        assert self.process.stdout
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == [start]:
                return words[1:]
        raise AssertionError(f"no line {start!r}; the program ended with {self.process.wait()}")

    def refused(self) -> None:
        """Wait until the program accepts no more connections, as a drain begins."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionResetError:
                continue  # it was in the queue of a socket that closed; another one may still accept
            except ConnectionRefusedError:
                return
        raise AssertionError("the program still accepts connections")

    def ask(self, path: str, port: int | None = None) -> http.client.HTTPResponse:
        """Send a request and return the answer as soon as its header is there."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        self._connections.append(connection)
        connection.request("GET", path)
        return connection.getresponse()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """Let nothing of the program remain, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        for connection in self._connections:
            connection.close()

    def wait(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def starter(**arguments: object) -> Program:
        program = Program(**arguments)  # type: ignore[arg-type]
        started.append(program)
        return program

    yield starter
    for program in started:
        program.close()


Start = Callable[..., Program]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_and_its_application(start: Start, number: signal.Signals) -> None:
    program = start()
    assert program.ask("/").read().isdigit()
    program.end(number)
    assert program.line("ended") == [str(program.pids[0])]
    assert program.wait() == 0


def test_answers_name_no_server(start: Start) -> None:
    answer = start().ask("/")
    assert answer.headers["server"] is None
    assert answer.headers["date"]


def test_the_admin_application_has_a_port_of_its_own(start: Start) -> None:
    program = start()
    assert program.ask("/", program.admin_port).read() == b"admin"


def test_a_request_in_flight_gets_to_finish(start: Start) -> None:
    program = start()
    answer = program.ask("/slow")
    program.end()
    assert answer.read() == b"xdraining"
    assert program.wait() == 0


def test_while_draining_nothing_is_accepted(start: Start) -> None:
    program = start()
    stream = program.ask("/stream")
    program.end()
    program.refused()
    assert stream.readline() == b"data: 1\n"


def test_a_stream_that_outlasts_the_drain_is_told_to_end(start: Start) -> None:
    program = start(drain_s=0.2)
    stream = program.ask("/stream")
    program.end()
    assert stream.read() == b"data: 1\n\ndata: error\n\n"
    assert program.wait() == 0


def test_what_hangs_after_all_is_cut_off(start: Start) -> None:
    program = start(drain_s=0.1)
    answer = program.ask("/hang")
    program.end()
    assert program.wait() == 0
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_half_a_request_does_not_delay_the_end(start: Start) -> None:
    program = start(drain_s=600)
    with socket.create_connection(("127.0.0.1", program.port)) as half:
        half.send(b"GET / HTT")
        program.ask("/").read()
        program.end()
        assert program.wait() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(start: Start, second: signal.Signals) -> None:
    program = start(drain_s=600)
    program.ask("/stream")
    program.ask("/hang")
    program.end()
    program.refused()
    program.end(second)
    program.wait()


def test_a_failed_start_ends_with_code_1(start: Start) -> None:
    assert start(environment={"FAIL_START": "1"}).wait() == 1


async def test_somebody_is_being_served_or_has_been_since_the_last_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Untouched, "tick", lambda _garbage, _now, *, busy: told.append(busy))
    server = Server(configure(nothing, Bounds(1, 1, 1), lifespan=False), Drain(), 1, None, supervised=False)
    await server.on_tick(1)
    server.server_state.total_requests += 1  # it came and went
    await server.on_tick(2)
    await server.on_tick(3)
    server.server_state.tasks.add(cast("Any", object()))
    await server.on_tick(4)
    assert told == [False, True, False, True]


async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Serve nobody."""
