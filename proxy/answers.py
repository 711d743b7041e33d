"""Send one answer to one client: whole, as a stream, or as an error, whichever the state of the connection allows."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from starlette.types import Send

from transom.proxy.errors import TransomError, error_body, sse_error

Headers = Iterable[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
STREAM_HEADERS = (EVENTS, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
COMMENT = b": transom\n"
"""A comment line alone: an empty line after it would be an event without data, which breaks some clients."""
COMMENT_EVERY_S = 10.0


class Answer:
    """The one answer of a request; `started` tells whether a status has gone out."""

    __slots__ = ("_send", "complete", "started", "status", "streaming")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.complete = False  # set when the last part is handed over: whoever leaves now has got all
        self.streaming = False
        self.status = 0

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """Send a complete answer; the length is that of the body."""
        self.started, self.status = True, status
        length = (b"content-length", str(len(body)).encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        self.complete = True
        await self._send({"type": "http.response.body", "body": body})

    async def open_stream(self, headers: Headers) -> None:
        """Begin a stream with status 200, unless it has begun already."""
        if not self.started:
            self.started, self.streaming, self.status = True, True, 200
            start = {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers]}
            await self._send(start)

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer of any other kind, of unknown length; an error can then only cut it off."""
        self.started, self.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers]})

    def part(self, block: bytes) -> Awaitable[None]:
        """Send a part of what has begun."""
        return self._send({"type": "http.response.body", "body": block, "more_body": True})

    async def close(self, block: bytes = b"") -> None:
        """End what has begun."""
        self.complete = True
        await self._send({"type": "http.response.body", "body": block})

    async def error(self, error: TransomError, headers: Headers = ()) -> None:
        """Tell the client what went wrong: as a status, or as an event where a status has gone out already."""
        if self.streaming:
            self.status = error.status
            await self.close(sse_error(error))
        elif not self.started:
            own = [(name.encode(), value.encode()) for name, value in error.headers.items()]
            await self.whole(error.status, error_body(error), [JSON, *own, *headers])


class Keepalive:
    """Comment lines for a streaming client that waits: after `first_s`, then every ten seconds.

    Costs one timer while nothing is due. `first_s` None: never.
    """

    def __init__(self, answer: Answer, first_s: float | None, headers: Callable[[], Headers]) -> None:
        self._answer, self._headers = answer, headers
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        if first_s is not None:
            self._timer = self._loop.call_later(first_s, self._due)

    def _due(self) -> None:
        self._sending = self._loop.create_task(self._comment())
        self._timer = self._loop.call_later(COMMENT_EVERY_S, self._due)

    async def _comment(self) -> None:
        await self._answer.open_stream(self._headers())
        await self._answer.part(COMMENT)

    async def stop(self) -> None:
        """Stop; a comment that is being sent is sent whole."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._sending is not None:
            with suppress(Exception):
                await self._sending


async def waited(work: "asyncio.Future[None]", seconds: float) -> bool:
    """Wait for something at most so long, without cancelling it; tell whether it was done without an error."""
    if not work.done():
        # What `asyncio.wait` does, for the one future that every request waits for.
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def end(_done: object = None) -> None:
            if not over.done():
                over.set_result(None)

        timer = loop.call_later(seconds, end)
        work.add_done_callback(end)
        try:
            await over
        finally:
            timer.cancel()
            work.remove_done_callback(end)
    return work.done() and not work.cancelled() and work.exception() is None
