"""Bring a model's JSON answer back to the client, unchanged but at the tool-call cap."""

from dataclasses import dataclass, replace

from transom.policies.tool_limit import GAVE_UP
from transom.proxy.errors import UpstreamBadResponse, UpstreamBroken
from transom.proxy.exchange import Exchange
from transom.proxy.sse import SseSplitter
from transom.proxy.upstream.base import UpstreamReply
from transom.proxy.upstream.headers import is_event_stream
from transom.proxy.wire import convert
from transom.proxy.wire.messages import fragments
from transom.proxy.wire.reply import Reply, parse_reply
from transom.proxy.wire.stream import StreamReader

MOST_BYTES = 256 * 1024 * 1024  # of one answer, however it comes
TOO_LARGE = "The model's server gave an answer that is too large."


class OutOfTools(Exception):
    """At the cap the model called a tool before it said anything, or said nothing at all."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete JSON answer: the bytes for the client, and what they say."""

    body: bytes
    reply: Reply


async def read_whole(reply: UpstreamReply, exchange: Exchange) -> Whole:
    """Read a JSON answer; one that came as a stream unasked is put together.

    Raises UpstreamBadResponse for what is no answer, or an empty one (never an empty success); OutOfTools at the cap.
    """
    if is_event_stream(reply.headers):
        whole = await _from_stream(reply, exchange.call.model)
    else:
        body = await reply.read(MOST_BYTES)
        whole = Whole(body, parse_reply(body))
    if whole.reply.empty and not any(whole.reply.finish):
        raise UpstreamBadResponse("The model's server answered without content and without a finish reason.")
    return _within_cap(whole) if exchange.capped else whole


async def _from_stream(reply: UpstreamReply, model: str) -> Whole:
    splitter, reader, spoken, size = SseSplitter(), StreamReader(), convert.Spoken(), 0
    async for chunk in reply.chunks():
        size += len(chunk)
        if size > MOST_BYTES:
            raise UpstreamBroken("too_large", TOO_LARGE)
        if block := splitter.feed(chunk):
            reader.feed_block(block)
            spoken.take(block)
    rest = splitter.ended()
    reader.feed_block(rest)
    spoken.take(rest)
    found = reader.reply()
    if not found.complete or not found.messages:
        raise UpstreamBadResponse
    return Whole(convert.completion(found, model, spoken), found)


def _within_cap(whole: Whole) -> Whole:
    opened = [fragments(message) for message in whole.reply.messages]
    if not any(o.calls for o in opened):
        if whole.reply.empty:
            raise OutOfTools
        return whole
    if not all(any(text.strip() for text in o.texts) for o in opened):
        raise OutOfTools
    body = convert.without_calls(whole.body)
    return Whole(body, replace(parse_reply(body), usage=whole.reply.usage))


def gave_up(model: str) -> Whole:
    """Return the synthetic answer that ends a turn whose model would not."""
    body = convert.text_answer(model, GAVE_UP)
    return Whole(body, parse_reply(body))
