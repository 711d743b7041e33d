"""One answer of an HTTP server: what the connection brings in on one side, what is read on the other, and deadlines.

1. The call ends by its deadlines, whatever the server does; waiting for a slow reader is not the server's fault.
2. What has come is handed out before it is told that the rest will not.
3. A server that sends faster than it is read is held back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Protocol

from transom.proxy.errors import TransomError, UpstreamBroken, UpstreamTimeout
from transom.proxy.upstream.http.decoding import Decoder, DecodingError

__all__ = ["Carrier", "Failure", "HttpReply", "Waits"]

TRANSFER_HEADERS = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
HELD_BYTES = 256 * 1024

Failure = Callable[[], TransomError]  # made anew wherever it is raised: an error kept would keep its frames


class Carrier(Protocol):
    """The connection, as an answer needs it."""

    def pause(self) -> None:
        """Take no more bytes from the server."""
        ...

    def resume(self) -> None:
        """Take them again."""
        ...

    def abort(self) -> None:
        """End the connection at once; no more is told to the answer."""
        ...


class Waits:
    """How long a call may take: `first_byte_s` and `idle_s` in seconds, `until` as the loop's time."""

    __slots__ = ("first_byte_s", "idle_s", "until")

    def __init__(self, first_byte_s: float, idle_s: float, until: float) -> None:
        self.first_byte_s, self.idle_s, self.until = first_byte_s, idle_s, until


class HttpReply:
    """Be one answer; an `UpstreamReply` once `begun` has returned.

    Attributes:
        status: the HTTP status.
        headers: in lower case; of repeated ones the last, and none that described the transfer.
        touched: whether a byte of the answer came.
    """

    __slots__ = (
        "_carrier",
        "_decoder",
        "_ended",
        "_failure",
        "_held",
        "_loop",
        "_paused",
        "_pieces",
        "_timer",
        "_waiter",
        "_waiting_since",
        "_waits",
        "headers",
        "status",
        "touched",
    )

    def __init__(self, carrier: Carrier, waits: Waits) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.touched = False
        self._loop = loop = asyncio.get_running_loop()
        self._carrier: Carrier | None = carrier
        self._waits = waits
        self._decoder: Decoder | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._paused = False
        self._ended = False
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._waiting_since: float | None = None
        now = loop.time()
        self._timer: asyncio.TimerHandle | None = loop.call_at(min(now + waits.first_byte_s, waits.until), self._late)

    # ------------------------------------------------------------------ the connection's side
    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Take the answer's head."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            try:
                self._decoder = Decoder(encoding)
            except DecodingError:
                self._break(_not_decoded)
                return
        for name in TRANSFER_HEADERS & headers.keys():
            del headers[name]
        self.status, self.headers = status, headers

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > HELD_BYTES and not self._paused and self._carrier is not None:
            self._paused = True
            self._carrier.pause()

    def end(self) -> None:
        """Take note that the answer is complete."""
        self._ended = self._failure is None
        self._leave()

    def fail(self, failure: Failure) -> None:
        """Take note that no more will come, and why."""
        if not self._ended and self._failure is None:
            self._failure = failure
        self._leave()

    def wake(self) -> None:
        """Let the reader look at what has come."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _leave(self) -> None:
        """Let go of connection and timer."""
        self._carrier = None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self.wake()

    # ------------------------------------------------------------------ the reader's side
    async def begun(self) -> Failure | None:
        """Wait for the head; return why there will be none, if so."""
        try:
            while not self.status and self._failure is None:
                await self._arrival()
        except BaseException:
            await self.close()
            raise
        if self._failure is None and not self._ended:
            self._watch()
        return None if self.status else self._failure

    async def read(self, limit: int) -> bytes:
        """Return the whole body, of at most `limit` bytes; see `UpstreamReply.read` for what it raises."""
        pieces = []
        size = 0
        while piece := await self._piece():
            size += len(piece)
            if size > limit:
                await self.close()
                raise UpstreamBroken("too_large", "The model's server gave an answer that is too large.")
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body as they come; see `UpstreamReply.chunks` for what they raise."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself: the pieces can be had once only."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next piece."""
        piece = await self._piece()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """End the call; the connection is kept if the answer came to its end, else closed at once."""
        self._break(partial(UpstreamBroken, "reset"))

    def _piece(self) -> Awaitable[bytes]:
        """Return the next piece, nothing at the end."""
        return self._received() if self._decoder is None else self._decoded(self._decoder)

    async def _decoded(self, decoder: Decoder) -> bytes:
        try:
            while not (decoded := decoder.take()):
                piece = await self._received()
                if not piece:
                    decoder.end()
                    break
                decoder.feed(piece)
        except DecodingError:
            self._break(_not_decoded)
        else:
            return decoded
        raise _not_decoded()

    async def _received(self) -> bytes:
        """Return all bytes that have come since the last call, nothing at the end."""
        if not self._pieces:
            if not self._ended and self._failure is None:
                self._waiting_since = self._loop.time()
                try:
                    while not (self._pieces or self._ended or self._failure is not None):
                        await self._arrival()
                finally:
                    self._waiting_since = None
            if not self._pieces:
                if self._ended:
                    return b""
                assert self._failure is not None
                raise self._failure()
        pieces, self._pieces, self._held = self._pieces, [], 0
        if self._paused:
            self._paused = False
            if self._carrier is not None:
                self._carrier.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _arrival(self) -> Awaitable[None]:
        """Return what is done once something has come, or will not."""
        waiter = self._waiter = self._loop.create_future()
        return waiter

    # ------------------------------------------------------------------ deadlines
    def _watch(self) -> None:
        """Fail if a deadline has passed, else look again when the next one is due.

        One timer a call that is moved when it rings, instead of one for each piece.
        """
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        waiting_since = now if self._waiting_since is None else self._waiting_since
        due = min(waiting_since + self._waits.idle_s, self._waits.until)
        if now < due:
            self._timer = self._loop.call_at(due, self._watch)
        else:
            self._late()

    def _late(self) -> None:
        self._break(UpstreamTimeout)

    def _break(self, failure: Failure) -> None:
        """End the call from this side."""
        carrier = self._carrier
        self.fail(failure)
        if carrier is not None:
            carrier.abort()


def _not_decoded() -> TransomError:
    return UpstreamBroken("encoding", "The answer of the model's server is not in the encoding that it names.")
