"""A programmable model server on loopback: answers what a test scripts for a model, and keeps what it was sent."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SUMMARISER = "You maintain the running summary"


class Gate:
    """Holds an answer back until a test opens it; nobody waits longer than a minute."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self) -> None:
        for _ in range(12_000):
            if self._opened.is_set():
                return
            await asyncio.sleep(0.005)


class OpensLater(Gate):
    """A gate that opens by itself."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        timer = threading.Timer(seconds, self.open)
        timer.daemon = True
        timer.start()


class Abort:
    """In the place of a part of an answer: the connection is reset."""


Part = bytes | Gate | Abort


@dataclass
class Answer:
    """One answer: its parts are written one by one, and each is on the wire before the next is begun."""

    parts: Iterable[Part] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    before: Gate | None = None  # passed before the headers go out


@dataclass(eq=False)
class Received:
    """One request as it came."""

    body: bytes
    headers: dict[str, str]
    path: str
    port: int
    method: str = "POST"
    query: str = ""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when the caller left before the answer's end."""

    @property
    def fields(self) -> dict[str, Any]:
        return dict(json.loads(self.body, parse_int=lambda digits: int(digits[:18])))

    @property
    def model(self) -> str:
        return str(self.fields["model"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.fields["messages"])

    @property
    def texts(self) -> list[Any]:
        return [m.get("content") for m in self.messages]

    @property
    def is_summary(self) -> bool:
        first = self.messages[0].get("content")
        return isinstance(first, str) and first.startswith(SUMMARISER)

    @property
    def summaries(self) -> list[str]:
        """The summary messages in it."""
        return [t for t in self.texts if isinstance(t, str) and "[Conversation Summary]" in t]


Script = Callable[[Received], Answer]


def completion(text: str | None = "Yes.", *, calls: Sequence[dict[str, Any]] = (), **more: Any) -> bytes:
    """Return a JSON answer; `more` overrides its top-level fields, `finish` the finish reason."""
    finish = more.pop("finish", "tool_calls" if calls else "stop")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(answer | more).encode()


def call(call_id: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def say(text: str | None = "Yes.", **more: Any) -> Answer:
    """Answer with a text, or calls, as JSON."""
    return Answer([completion(text, **more)])


def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """Return one event of a stream; `delta` None is one without choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(chunk | more).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM = {"content-type": "text/event-stream"}


def spoken(*pieces: str) -> list[bytes]:
    """Return the events of a streamed text, `[DONE]` not among them."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": p} for p in pieces)]
    return [*(event(delta) for delta in deltas), event({}, "stop")]


def stream(parts: Iterable[Part], **more: Any) -> Answer:
    """Answer with a stream."""
    return Answer(list(parts), headers=dict(STREAM), **more)


def ordinary(received: Received) -> Answer:
    """Answer anything: a summary request with a short summary, else a sentence, as it was asked for."""
    if received.is_summary:
        return say("They talked about rivers.")
    text = f"Answer {len(received.messages)}."
    return stream([*spoken(text), DONE]) if received.fields.get("stream") else say(text)


def unanswerable(messages: Sequence[dict[str, Any]]) -> str | None:
    """Say why a provider would refuse these messages, or None: the pairing of calls and results, and an empty list."""
    if not messages:
        return "no messages"
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a result without its call"
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return "a call without its result"
        else:
            waiting = {c["id"] for c in message.get("tool_calls") or ()}
    return None


class FakeUpstream:
    """The server, in a thread of its own."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.scripts: dict[str, Script] = {}
        self.refusals: list[str] = []  # what a real provider would have refused
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self.port = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def on(self, model: str, *answers: Script | Answer) -> None:
        """Answer the next requests for a model so, one after the other, the last one for ever."""
        rest: Iterator[Script | Answer] = iter(answers)
        last = answers[0]
        lock = threading.Lock()

        def script(received: Received) -> Answer:
            nonlocal last
            with lock:
                last = next(rest, last)
                chosen = last
            return chosen if isinstance(chosen, Answer) else chosen(received)

        self.scripts[model] = script

    def at(self, path: str, *answers: Script | Answer) -> None:
        """Do as `on` for a path below `/v1`, other than that of chat completions, whatever the model."""
        self.on(f"/v1/{path}", *answers)

    def number_summaries(self, model: str) -> None:
        """Write another summary at each call for a model, and answer its other requests as ever."""
        numbers = itertools.count(1)
        self.on(model, lambda r: say(f"Summary number {next(numbers)}.") if r.is_summary else ordinary(r))

    def clear(self) -> None:
        """Forget all requests and scripts."""
        self.received, self.scripts, self.refusals = [], {}, []

    def to(self, model: str) -> list[Received]:
        """Return the requests for a model that are no summary requests."""
        return [r for r in self.received if r.model == model and not r.is_summary]

    def summary_calls(self, model: str | None = None) -> list[Received]:
        """Return the summary requests."""
        return [r for r in self.received if r.is_summary and model in (None, r.model)]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        started.set()
        self._loop.run_forever()
        assert self._runner is not None
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _open(self) -> None:
        app = web.Application(client_max_size=100 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else ("", 0)
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        received = Received(body, headers, request.path, peer[1], request.method, request.rel_url.raw_query_string)
        self.received.append(received)
        try:
            return await self._answer(request, self._script(received)(received))
        except (asyncio.CancelledError, ConnectionResetError):
            received.gone.set()
            raise

    def _script(self, received: Received) -> Script:
        if (received.method, received.path) != ("POST", "/v1/chat/completions"):
            return self.scripts.get(received.path, lambda _: Answer([b'{"object": "list", "data": []}']))
        refusal = unanswerable(received.messages)
        if refusal is not None:
            self.refusals.append(refusal)
        return self.scripts.get(received.model, ordinary)

    @staticmethod
    async def _answer(request: web.Request, answer: Answer) -> web.StreamResponse:
        if answer.before is not None:
            await answer.before.passed()
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        for part in answer.parts:
            if isinstance(part, Gate):
                await part.passed()
            elif isinstance(part, Abort):
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(part)
        await response.write_eof()
        return response
