"""One answer that litellm translated, behind the upstream port."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from transom.proxy.errors import UpstreamBadResponse, UpstreamBroken
from transom.proxy.upstream.failures import let_go
from transom.proxy.upstream.litellm.call import Call, Refusal
from transom.proxy.upstream.litellm.failures import fault
from transom.proxy.upstream.litellm.raw_stream import RawStream
from transom.proxy.upstream.litellm.shapes import endings, event, finishes

__all__ = ["EVENTS", "JSON", "LitellmReply", "events"]

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


class LitellmReply:
    """Be one answer; an `UpstreamReply`.

    Args:
        status: HTTP's.
        headers: names in lower case.
        first: the body, or its first piece.
        call: ended when the answer is closed.
        rest: the further pieces.
    """

    __slots__ = ("_call", "_first", "_rest", "headers", "status")

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        first: bytes,
        call: Call,
        rest: AsyncGenerator[bytes] | None = None,
    ) -> None:
        self.status, self.headers = status, headers
        self._first: bytes | None = first
        self._call, self._rest = call, rest

    async def read(self, limit: int) -> bytes:
        """Return the whole body, of at most `limit` bytes; see `UpstreamReply.read` for what it raises."""
        body = b"".join([piece async for piece in self])
        if len(body) > limit:
            raise UpstreamBroken("too_large", "The model's server gave an answer that is too large.")
        return body

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body as they come; see `UpstreamReply.chunks` for what they raise."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself: the pieces can be had once only."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next piece."""
        if self._first is not None:
            piece, self._first = self._first, None
            return piece
        if self._rest is None:
            raise StopAsyncIteration
        return await anext(self._rest)

    async def close(self) -> None:
        """End the call at once; what has not come is not wanted."""
        self._first, rest, self._rest = None, self._rest, None
        await self._call.close()
        if rest is not None:
            with suppress(RuntimeError):  # somebody still waits for a piece, and hears of the end there
                await rest.aclose()


async def events(stream: Any, call: Call, *, several: bool = False) -> AsyncGenerator[bytes]:
    """Yield the events of litellm's stream, `[DONE]` last.

    Args:
        stream: litellm's.
        call: what passes on the wire.
        several: whether more than one choice was asked for.

    A finish reason that litellm made up ends the stream as broken; an error of the provider's is an event, and the
    last. Before the first event, whatever litellm raises goes on as it is.

    Raises TransomError.
    """
    begun = False
    failed: Exception | None = None
    try:
        async with aclosing(_pieces(stream, call, several)) as pieces:
            async for piece in pieces:
                yield piece
                begun = True
    except Exception as raised:  # noqa: BLE001  litellm raises whatever its parts do
        failed = raised
    finally:
        await stream.aclose()
    if failed is None:
        yield DONE
        return
    if not begun:
        raise failed
    outcome = fault(failed, call, ())
    let_go(failed)
    if not isinstance(outcome, Refusal):
        raise outcome
    yield b"data: " + outcome.body + b"\n\n"


async def _pieces(stream: Any, call: Call, several: bool) -> AsyncGenerator[bytes]:
    chunk: Any = None
    with RawStream(stream, several=several) as raw:
        async for chunk in stream:
            if finishes(chunk) and not call.reasoned and stream.received_finish_reason is None:
                raise UpstreamBadResponse("The model's stream ended before the answer was complete.")
            parts = [event(raw.own(chunk)), endings(chunk, raw.ends())] if several else [event(chunk)]
            for piece in filter(None, parts if chunk.choices else reversed(parts)):
                yield piece
        if piece := endings(chunk, raw.ends()):
            yield piece
