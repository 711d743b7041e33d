"""Bring a streamed answer back to the client: bytes as they come, the end held until what was said is stored.

1. Whole events are passed on as soon as they are complete, in the upstream's own bytes.
2. The extra usage event is dropped unless the client asked for it.
3. From the event with the finish reason on, everything is held until the commit; then it goes out with `[DONE]`.
   With several choices that is the last one's: one may end long before another.
4. A stream that ends without finish reason and `[DONE]`, breaks, or reports an error is incomplete: an error event
   in OpenAI's shape goes out, and nothing after it. Before a choice has begun an error is an answer of its own.
5. At the tool-call cap nothing goes out before the model says something; calls after that are taken out.
6. A JSON answer that only calls itself a stream is made one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from transom.proxy.answers import Answer
from transom.proxy.errors import TransomError, UpstreamBadResponse, UpstreamBroken
from transom.proxy.exchange import Exchange, Headers
from transom.proxy.relay import MOST_BYTES, TOO_LARGE, OutOfTools, Reported, from_json, spoken
from transom.proxy.sse import BOM, SseSplitter, events, payload
from transom.proxy.upstream.auth import error_code, redact_bytes
from transom.proxy.upstream.base import UpstreamReply
from transom.proxy.wire.convert import DONE, CallsDropped, as_stream
from transom.proxy.wire.reply import Reply
from transom.proxy.wire.report import reported_in
from transom.proxy.wire.stream import StreamReader, is_usage_event, reads_whole

LINGER_S = 2.0  # how long `[DONE]` may follow the finish reason
BLANKS = 64  # bytes before the first of an answer; some servers keep a connection awake with them
SETTLE_S = 0.5  # how long the end of the transfer may follow `[DONE]`


class StreamRelay:
    """Relays one stream. Afterwards `reader` has what was said, `held` the end that must wait for the commit."""

    def __init__(self, answer: Answer, exchange: Exchange, headers: Headers) -> None:
        self._answer, self._exchange = answer, exchange
        self._headers = [pair for pair in headers if pair[0] != b"content-type"]
        self._splitter = SseSplitter()
        self._drop_usage = not exchange.call.include_usage
        self._capped = CallsDropped() if exchange.capped else None
        self._chunks: AsyncIterator[bytes] | None = None
        self._waiting: list[bytes] = []  # capped: events that came before the model said something
        self._passing = False  # whether an event has gone out
        self.reader = StreamReader()
        self.held: list[bytes] = []
        self.first_token_s: float | None = None

    @property
    def reply(self) -> Reply:
        """What has been said so far."""
        return self.reader.reply()

    async def run(self, reply: UpstreamReply) -> None:
        """Relay until the end, or until only what is held is left.

        Raises UpstreamError when the stream breaks or is no answer; Reported where it is only an error; OutOfTools at
        the cap.
        """
        chunks = self._chunks = aiter(reply.chunks())
        size = 0
        while not self.reader.over:
            try:
                # Once the model has finished, only briefly for what may still follow.
                chunk = await (asyncio.wait_for(anext(chunks), LINGER_S) if self.held else anext(chunks))
            except StopAsyncIteration:
                break
            except (TransomError, TimeoutError):
                if self.held:
                    break
                raise
            if not size and chunk[:BLANKS].removeprefix(BOM).lstrip().startswith(b"{"):
                chunk = await self._framed(chunk, chunks)
            size += len(chunk)
            if size > MOST_BYTES:
                raise UpstreamBroken("too_large", TOO_LARGE)
            block = self._splitter.feed(chunk)
            if block and (passed := self._take(block)):
                await self._pass(passed)
        if self._splitter.rest and not self.reader.over and (passed := self._take(self._last_event())):
            await self._pass(passed)
        self._check_end()

    async def _framed(self, begun: bytes, chunks: AsyncIterator[bytes]) -> bytes:
        """Return the events of an answer that is JSON."""
        pieces, size = [begun], len(begun)
        async for piece in chunks:
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise UpstreamBroken("too_large", TOO_LARGE)
        whole = spoken(from_json(b"".join(pieces)))
        return b"".join(as_stream(whole.body, include_usage=True)) + DONE

    def _last_event(self) -> bytes:
        """Return what came without its end; after the model has finished, only if it is whole all the same."""
        event = self._splitter.ended()
        torn = event != self._splitter.rest and not reads_whole(payload(event))
        return b"" if torn and self.held else event

    async def settle(self) -> None:
        """Read the little that may follow `[DONE]`, so that the connection can be used again."""
        if self.reader.done_seen and self._chunks is not None:
            with suppress(StopAsyncIteration, TransomError, TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    while True:
                        await anext(self._chunks)

    def _check_end(self) -> None:
        if self.reader.error_seen:
            reported = reported_in(b"".join(self.held))
            if reported is None:
                return
            begun = self.reader.begun if self._capped is None else self.reader.content_seen
            if not (self._passing or begun):
                raise Reported(reported[1])
            self._exchange.code = error_code(reported[1].body)
            return
        if self.reader.malformed_seen:
            raise UpstreamBadResponse("The model's stream held something that is not JSON.")
        found = self.reply
        if self._capped is not None and found.complete and not self.reader.content_seen:
            raise OutOfTools
        if not found.complete or (found.empty and not any(found.finish)):
            raise UpstreamBadResponse("The model's stream ended before the answer was complete.")

    def _take(self, block: bytes) -> bytes:
        """Read whole events; return what may go out now."""
        if self._capped is not None:
            block = self._within_cap(block, self._capped)
        else:
            self.reader.feed_block(block)
        if self.first_token_s is None and (self.reader.content_seen or self.reader.tool_call_seen):
            self.first_token_s = self._exchange.elapsed()
        if self._drop_usage and self.reader.usage_event_seen:
            block = _without_usage(block)
        if self.held or self.reader.over or self.reader.finishes >= self._exchange.call.n:
            block, end = self._parted(block)
            self.held.append(end)
        return block

    def _parted(self, block: bytes) -> tuple[bytes, bytes]:
        """Return what may go out of a block with an end in it, and what is held.

        A last word is often sent with the end right behind it, so that both come at once.
        """
        if not self._passing or self.held or self.reader.error_seen or self.reader.malformed_seen:
            return b"", block
        whole = events(block)
        for place in range(len(whole) - 1, -1, -1):
            reader = StreamReader()
            reader.feed_event(whole[place])
            if reader.finishes:
                return b"".join(whole[:place]), b"".join(whole[place:])
        return b"", block

    async def _pass(self, block: bytes) -> None:
        self._passing = True
        if not self._answer.started:
            await self.open()
        await self._answer.part(block)

    async def open(self) -> None:
        """Send the headers, unless they are out."""
        if not self._answer.started:
            await self._answer.open_stream([*self._headers, *self._exchange.window_headers()])

    def _within_cap(self, block: bytes, strip: CallsDropped) -> bytes:
        """Return the events of a block that may go out at the cap."""
        passed = []
        for event in events(block):
            data = payload(event)
            stripped = strip(data) if data and data.strip() != b"[DONE]" else None
            passed.append(event if stripped is None else stripped)
            self.reader.feed_event(passed[-1])
            if strip.calls and not self.reader.content_seen:
                raise OutOfTools
        self._waiting += passed
        if not (self.reader.content_seen or self.reader.error_seen):
            return b""
        ready, self._waiting = b"".join(self._waiting), []
        return ready

    def ending(self, comment: bytes) -> bytes:
        """Return what is held, a late comment, and `[DONE]` itself, which a finished stream ends with."""
        block = b"".join(self.held)
        if self.reader.error_seen:
            return self._ending_in_error(block)
        if block.endswith(b"\n\n" + DONE) and block.count(b"[DONE]") == 1:  # as nearly all end
            return block[: -len(DONE)] + comment + DONE
        kept = [e for e in events(block) if payload(e).strip() != b"[DONE]"]
        return b"".join(kept) + comment + DONE

    def _ending_in_error(self, block: bytes) -> bytes:
        """Return the events up to the first error, which is the last one."""
        reported = reported_in(block)
        if reported is not None:
            block = reported[0] + reported[1].event
        caller = self._exchange.conversation.caller
        return block if caller.bearer is not None else redact_bytes(block, self._exchange.route.model.secrets)


def _without_usage(block: bytes) -> bytes:
    return b"".join(e for e in events(block) if b'"usage"' not in e or not is_usage_event(payload(e)))
