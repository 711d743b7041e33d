"""Killed at any instant: the database opens clean, what a client received whole is stored, nothing torn is ever sent.

TRANSOM_TEST_KILLS says how often; five by default.
"""

import itertools
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import OpenAI

from tests.proxy.e2e.conftest import POLICIES, sqlite
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Received, call, completion, event, say, stream
from tests.proxy.e2e.served import CHAT, Got, Json, config, key, long_text, request, result, user
from tests.proxy.e2e.test_compress import until
from transom.storage import identity

KILLS = int(os.environ.get("TRANSOM_TEST_KILLS", "5"))
CLIENTS = 6


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def ready(port: int) -> bool:
    with suppress(OSError, HTTPException):
        return request(port, "/readyz").status == 200
    return False


class Killable:
    """A server process that can be killed and begun again."""

    def __init__(self, mapping: Json, folder: Path) -> None:
        self.port = free_port()
        file = folder / "config.yaml"
        file.write_text(yaml.safe_dump(mapping))
        program = [sys.executable, str(Path(__file__).with_name("preforked.py")), str(file), str(self.port)]
        self._parent = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._child = 0
        assert self._line() == "ready"

    def start(self) -> None:
        """Begin a server and wait until it is ready."""
        assert self._parent.stdin is not None
        self._parent.stdin.write("\n")
        self._parent.stdin.flush()
        self._child = int(self._line())
        until(lambda: ready(self.port))

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        self._child = 0

    def close(self) -> None:
        with suppress(ProcessLookupError):
            if self._child:
                os.kill(self._child, signal.SIGKILL)
        self._parent.communicate(timeout=60)

    def _line(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().strip()


@pytest.fixture
def killable(upstream: FakeUpstream, tmp_path: Path) -> Iterator[Killable]:
    mapping = config(upstream.url, POLICIES, database=sqlite(tmp_path))
    server = Killable(mapping, tmp_path)
    yield server
    server.close()


class Client(threading.Thread):
    """Talks without end, with tools and over the limit, and remembers which answers it received whole."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.port, self.session = port, f"client-{number}"
        self.streams = number % 2 == 1
        self.whole: list[tuple[str, str]] = []  # (the last message's text, the answer's)
        self.over = threading.Event()
        self._messages: list[Json] = []
        self._turns = itertools.count()

    def run(self) -> None:
        while not self.over.is_set():
            if not self._messages or self._messages[-1]["role"] == "assistant":
                self._messages.append(user(long_text(f"{self.session} turn {next(self._turns)}", 150)))
            answer = self._ask()
            if answer is None:
                time.sleep(0.02)
                continue
            self._messages.append(answer)
            for made in answer.get("tool_calls") or ():
                self._messages.append(result(made["id"], f"{self.session} result {next(self._turns)}"))

    def _ask(self) -> Json | None:
        body = {"model": "fill", "messages": self._messages, "stream": self.streams}
        try:
            got = request(self.port, CHAT, body, key("acme") | {"x-session-id": self.session})
        except (OSError, HTTPException):
            return None
        if got.status != 200 or "x-transom-storage" in got.headers or b"x-transom-storage" in got.body:
            return None
        answer = joined(got) if self.streams else got.message
        if answer is not None:
            self.whole.append(
                (self._messages[-1]["content"], json.dumps(answer.get("tool_calls") or answer["content"]))
            )
        return answer


def joined(got: Got) -> Json | None:
    """Put a stream together; None if it did not end."""
    if not got.body.endswith(DONE):
        return None
    deltas = [json.loads(e[6:])["choices"][0]["delta"] for e in got.events[:-1] if e.startswith(b"data: {")]
    calls = [c for d in deltas for c in d.get("tool_calls") or ()]
    text = "".join(d.get("content") or "" for d in deltas)
    if calls:
        return {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [{k: c[k] for k in ("id", "type", "function")} for c in calls],
        }
    return {"role": "assistant", "content": text}


def talkative(upstream: FakeUpstream) -> None:
    """Answer each request otherwise, every third with two calls."""
    numbers = itertools.count()

    def script(received: Received) -> Answer:
        number = next(numbers)
        if received.is_summary:
            return Answer([completion(f"Summary {number}.")])
        wants_tool = received.messages[-1]["role"] == "user" and number % 3 == 0
        calls = [call(f"call-{number}-{i}") for i in range(2)] if wants_tool else []
        text = None if calls else f"Answer number {number}."
        if not received.fields.get("stream"):
            return say(text, calls=calls)
        delta: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            delta["tool_calls"] = [{"index": i, **c} for i, c in enumerate(calls)]
        return stream([event(delta), event({}, "tool_calls" if calls else "stop"), DONE])

    upstream.on("fill", script)


def check(database: Path, clients: list[Client]) -> None:
    """Look at the database as a killed process left it."""
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        secret = bytes.fromhex(connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0])
        dangling = """SELECT count(*) FROM baselines b WHERE summary IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM summaries s WHERE s.id = b.summary AND s.session = b.session)"""
        assert connection.execute(dangling).fetchone()[0] == 0
        for client in clients:
            session = identity.session_id(secret, "acme", "key", None, client.session)
            rows = connection.execute(
                "SELECT m.payload, p.payload FROM messages m "
                "LEFT JOIN messages p ON p.session = m.session AND p.id = m.parent "
                "WHERE m.session = (SELECT seq FROM sessions WHERE id = ?)",
                (session.hex(),),
            ).fetchall()
            stored = {(said(parent), said(payload)) for payload, parent in rows if parent is not None}
            for question, answer in client.whole:
                assert (json.dumps(question), answer) in stored, (client.session, question, answer)
            assert len(rows) == len({(said(payload), said(parent)) for payload, parent in rows})


def said(payload: bytes | None) -> str:
    message = json.loads(payload or b"{}")
    return json.dumps(message.get("tool_calls") or message.get("content"))


def whole(clients: list[Client]) -> int:
    return sum(len(client.whole) for client in clients)


def talk_on(clients: list[Client]) -> None:
    """Wait until the clients have received some more answers whole."""
    enough = whole(clients) + CLIENTS
    until(lambda: whole(clients) >= enough)


@pytest.mark.timeout(300 + 60 * KILLS)
def test_sigkill_under_load(killable: Killable, upstream: FakeUpstream, tmp_path: Path) -> None:
    talkative(upstream)
    clients = [Client(killable.port, number) for number in range(CLIENTS)]
    chance = random.Random(7)
    killable.start()
    for client in clients:
        client.start()
    for _ in range(KILLS):
        talk_on(clients)
        time.sleep(chance.random() * 0.5)
        killable.kill()
        check(tmp_path / "transom.db", clients)
        killable.start()
    talk_on(clients)
    until(upstream.summary_calls)
    for client in clients:
        client.over.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    killable.kill()
    check(tmp_path / "transom.db", clients)
    assert b'"level":"error"' not in (tmp_path / "config.log").read_bytes().replace(b" ", b"")


def test_the_command_line_serves_an_upstream_and_ends_at_sigterm(upstream: FakeUpstream, tmp_path: Path) -> None:
    port = free_port()
    command = [str(Path(sys.executable).with_name("transom")), "serve", "--upstream", upstream.url, "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            until(lambda: ready(port))
            with OpenAI(
                base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-the-clients-own-key", max_retries=0
            ) as client:
                answer = client.chat.completions.create(model="any-name", messages=[{"role": "user", "content": "Hi."}])
            assert answer.choices[0].message.content == "Answer 1."
            assert upstream.received[0].headers["authorization"] == "Bearer sk-the-clients-own-key"
            assert upstream.received[0].model == "any-name"
            server.terminate()
            out, _ = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 0, out
    assert "sk-the-clients" not in out
    assert "Hi." not in out
