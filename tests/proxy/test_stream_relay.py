"""A stream on its way back: bytes as they come, the end held back, and what passes at the tool-call cap."""

import json
from typing import Any

import pytest

from tests.proxy.builders import Reply, exchange, streamed
from tests.proxy.e2e.fake_upstream import DONE, call, event, spoken
from transom.proxy.answers import Answer
from transom.proxy.errors import UpstreamBadResponse, UpstreamBroken
from transom.proxy.exchange import Exchange
from transom.proxy.relay import OutOfTools
from transom.proxy.stream_relay import StreamRelay

USAGE = event(None, usage={"prompt_tokens": 7, "completion_tokens": 2})
CALLING = event({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call("1")}]})
ERROR = b'data: {"error": {"message": "overloaded", "code": 500}}\n\n'


class Client:
    """Keeps what was sent to it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.answer = Answer(self._take)

    async def _take(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])


def asked(*, capped: bool = False, **more: Any) -> Exchange:
    body = {"messages": [{"role": "user", "content": "Hello?"}], "tools": [{"type": "function"}], "stream": True}
    return exchange(body | more, capped=capped)


def relay(exchange: Exchange) -> tuple[StreamRelay, Client]:
    client = Client()
    return StreamRelay(client.answer, exchange, [(b"content-type", b"text/event-stream"), (b"x-kept", b"1")]), client


async def passed(*pieces: bytes | Exception, **more: Any) -> tuple[StreamRelay, Client]:
    """Relay a stream in these pieces, up to what is held."""
    made, client = relay(asked(**more))
    await made.run(streamed(*pieces))
    return made, client


# ---------------------------------------------------------------------- passing
async def test_events_pass_in_their_own_bytes_and_the_end_waits() -> None:
    *words, end = spoken("Hi", "!")
    made, client = await passed(*words, end, DONE)
    assert client.body == b"".join(words)
    assert b"".join(made.held) == end + DONE
    assert made.reply.complete
    assert made.ending(b": late\n") == end + b": late\n" + DONE


async def test_a_last_word_does_not_wait_with_the_end_it_came_with() -> None:
    first, *words, end = spoken("Hi", " there", "!")
    made, client = await passed(first, b"".join([*words, end, USAGE, DONE]), stream_options={"include_usage": True})
    assert client.body == first + b"".join(words)
    assert b"".join(made.held) == end + USAGE + DONE


async def test_pieces_may_end_anywhere() -> None:
    whole = b"".join([*spoken("Grüße", "!"), DONE])
    made, client = await passed(*(bytes([byte]) for byte in whole))
    assert client.body + made.ending(b"") == whole
    assert json.loads(made.reply.messages[0])["content"] == "Grüße!"


async def test_headers_pass_with_ours_and_one_type() -> None:
    _, client = await passed(*spoken("Hi"), DONE)
    assert client.headers[b"x-kept"] == b"1"
    assert client.headers[b"x-transom-policy"] == b"p"
    assert [name for name, _ in client.sent[0]["headers"]].count(b"content-type") == 1


async def test_nothing_goes_out_before_something_came() -> None:
    made, client = relay(asked())
    with pytest.raises(UpstreamBroken):
        await made.run(streamed(UpstreamBroken("reset")))
    assert client.sent == []


@pytest.mark.parametrize("wanted", [True, False])
async def test_usage_is_dropped_unless_it_was_asked_for(wanted: bool) -> None:
    made, client = await passed(*spoken("Hi"), USAGE, DONE, stream_options={"include_usage": wanted})
    assert (USAGE in client.body + made.ending(b"")) is wanted
    assert made.reply.usage is not None


async def test_of_several_choices_one_may_end_long_before_another() -> None:
    first = event({"content": "A"}, "stop")
    choice = {"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}
    other = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    made, client = await passed(first, other, DONE, n=2)
    assert client.body == first
    assert made.ending(b"") == other + DONE


# ---------------------------------------------------------------------- ends
@pytest.mark.parametrize(
    "tail",
    [[], [UpstreamBroken("reset")], [TimeoutError()]],
    ids=["closed", "broken", "silent"],
)
async def test_a_finish_reason_is_an_end_whatever_follows(tail: list[Exception]) -> None:
    *words, end = spoken("Hi")
    made, _ = await passed(*words, end, *tail)
    assert made.reply.complete
    assert made.ending(b"") == end + DONE


async def test_done_without_a_finish_reason_is_an_end() -> None:
    made, _ = await passed(*spoken("Hi")[:-1], DONE)
    assert made.reply.complete


async def test_a_last_event_without_its_blank_line_counts() -> None:
    *words, end = spoken("Hi")
    made, _ = await passed(*words, end.rstrip(b"\n"))
    assert made.reply.complete


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        (spoken("Hi")[:-1], UpstreamBadResponse),
        ([DONE], UpstreamBadResponse),
        ([], UpstreamBadResponse),
        ([*spoken("Hi")[:-1], b"data: {oops\n\n"], UpstreamBadResponse),
        ([*spoken("Hi")[:-1], UpstreamBroken("reset")], UpstreamBroken),
    ],
    ids=["cut off", "nothing said", "nothing at all", "no JSON", "broken"],
)
async def test_what_does_not_end_is_incomplete(pieces: list[Any], error: type[Exception]) -> None:
    made, client = relay(asked())
    with pytest.raises(error):
        await made.run(streamed(*pieces))
    assert b"[DONE]" not in client.body


async def test_an_error_event_ends_a_stream_without_done() -> None:
    made, client = await passed(*spoken("Hi")[:-1], ERROR)
    assert not made.reply.complete
    assert made.ending(b": late\n") == ERROR
    assert ERROR not in client.body


async def test_what_follows_done_is_read_for_the_connections_sake() -> None:
    made, client = await passed(*spoken("Hi"), DONE, b"\n")
    await made.settle()
    assert client.body.count(b"data") == 2


# ---------------------------------------------------------------------- at the cap
async def test_words_pass_at_the_cap() -> None:
    words = spoken("Do", "ne.")
    made, client = await passed(*words, DONE, capped=True)
    assert client.body + made.ending(b"") == b"".join(words) + DONE


async def test_what_needs_no_change_keeps_its_lines_at_the_cap() -> None:
    odd = b'event: message\r\ndata: {"choices": [{"index": 0,\r\ndata:  "delta": {"content": "Hi"}}]}\r\n\r\n'
    _, client = await passed(odd, *spoken("!"), DONE, capped=True)
    assert client.body.startswith(odd)


@pytest.mark.parametrize(
    "pieces",
    [[CALLING], [event({"role": "assistant", "content": ""}), CALLING], [*spoken(), DONE], [event({}, "tool_calls")]],
    ids=["a call", "a call after nothing", "nothing", "an end"],
)
async def test_a_call_before_any_word_is_asked_again(pieces: list[bytes]) -> None:
    made, client = relay(asked(capped=True))
    with pytest.raises(OutOfTools):
        await made.run(streamed(*pieces))
    assert client.sent == []


async def test_calls_after_words_are_taken_out() -> None:
    *words, _ = spoken("Done.")
    made, client = await passed(*words, CALLING, event({}, "tool_calls"), DONE, capped=True)
    text = (client.body + made.ending(b"")).decode()
    assert "tool_calls" not in text
    assert '"finish_reason":"stop"' in text.replace(" ", "")
    assert made.reply.finish == ["stop"]


@pytest.mark.parametrize(
    "odd",
    [b'{"choices": [1]}', b'{"choices": 5}', b'{"choices": [{"delta": 1}]}', b"[]", b"1", b"[" * 100_000],
    ids=["no choice", "no choices", "no delta", "a list", "a number", "deep"],
)
async def test_odd_events_at_the_cap_fail_as_they_do_elsewhere(odd: bytes) -> None:
    block = b"data: " + odd + b"\n\n"
    outcomes = []
    for capped in (False, True):
        made, client = relay(asked(capped=capped))
        try:
            await made.run(streamed(*spoken("Hi")[:-1], block, spoken("Hi")[-1], DONE))
            outcomes.append(client.body + made.ending(b""))
        except UpstreamBadResponse:
            outcomes.append(b"bad")
    assert outcomes[0] == outcomes[1]


async def test_a_json_reply_is_no_stream() -> None:
    made, _ = relay(asked())
    with pytest.raises(UpstreamBadResponse):
        await made.run(Reply(b'{"choices": []}'))
