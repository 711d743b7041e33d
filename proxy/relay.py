"""Bring a model's JSON answer back to the client, unchanged but at the tool-call cap."""

import asyncio
from dataclasses import dataclass, replace

from transom.policies.tool_limit import GAVE_UP
from transom.proxy.errors import UpstreamBadResponse
from transom.proxy.exchange import Exchange
from transom.proxy.sse import BOM, SseSplitter, is_framed
from transom.proxy.upstream.base import UpstreamReply
from transom.proxy.wire import convert
from transom.proxy.wire.messages import fragments
from transom.proxy.wire.reply import Reply, parse_reply
from transom.proxy.wire.report import Report, read_report, reported_in
from transom.proxy.wire.stream import StreamReader

MOST_BYTES = 256 * 1024 * 1024  # of one answer, however it comes
TOO_LARGE = "The model's server gave an answer that is too large."
SLICE_BYTES = 256 * 1024  # of a stream that is put together, before others get their turn


class Reported(Exception):
    """In an answer of status 200 the server said that it has failed, before it said anything else."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__()


class OutOfTools(Exception):
    """At the cap the model called a tool before it said anything, or said nothing at all."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete JSON answer: the bytes for the client, and what they say."""

    body: bytes
    reply: Reply


async def read_whole(reply: UpstreamReply, exchange: Exchange) -> Whole:
    """Read a JSON answer; one that came as a stream unasked is put together.

    Raises UpstreamBadResponse for what is no answer, or an empty one (never an empty success); Reported where it is an
    error; OutOfTools at the cap.
    """
    whole = await answer_in(await reply.read(MOST_BYTES), exchange.call.model)
    return _within_cap(spoken(whole)) if exchange.capped else spoken(whole)


def spoken(whole: Whole) -> Whole:
    """Return an answer that says something, if only that it has ended. Raises UpstreamBadResponse for any other."""
    if whole.reply.empty and not any(whole.reply.finish):
        raise UpstreamBadResponse("The model's server answered without content and without a finish reason.")
    return whole


async def answer_in(body: bytes, model: str) -> Whole:
    """Return the answer that a body is, or as a stream amounts to: some servers name no type, or another's.

    Raises UpstreamBadResponse for what is none, Reported for an error.
    """
    return await _from_stream(body, model) if is_framed(body) else from_json(body)


def from_json(body: bytes) -> Whole:
    """Return a JSON answer. Raises UpstreamBadResponse for what is none, Reported for an error."""
    body = body.removeprefix(BOM)  # which some servers write, and no client of JSON has to read (RFC 8259, 8.1)
    try:
        return Whole(body, parse_reply(body))
    except UpstreamBadResponse:
        report = read_report(body)
        if report is None:
            raise
    raise Reported(report)


async def _from_stream(body: bytes, model: str) -> Whole:
    splitter, reader, beside = SseSplitter(), StreamReader(), convert.Spoken()
    for start in range(0, len(body), SLICE_BYTES):
        if block := splitter.feed(body[start : start + SLICE_BYTES]):
            reader.feed_block(block)
            beside.take(block)
        await asyncio.sleep(0)
    rest = splitter.ended()
    reader.feed_block(rest)
    beside.take(rest)
    found = reader.reply()
    if reader.error_seen and (reported := reported_in(body)) is not None:
        raise Reported(reported[1])
    if not found.complete or not found.messages:
        raise UpstreamBadResponse
    return Whole(convert.completion(found, model, beside), found)


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
