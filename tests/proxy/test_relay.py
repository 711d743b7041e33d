"""A JSON answer on its way back: what is one, what is none, and what of it passes at the tool-call cap."""

import json

import pytest

from tests.proxy.builders import Reply, exchange, streamed
from tests.proxy.e2e.fake_upstream import DONE, call, completion, event, spoken
from transom.policies.tool_limit import GAVE_UP
from transom.proxy.errors import UpstreamBadResponse
from transom.proxy.exchange import Exchange
from transom.proxy.relay import OutOfTools, Whole, gave_up, read_whole

ASKED = {"messages": [{"role": "user", "content": "Hello?"}], "tools": [{"type": "function"}]}


def asked(*, capped: bool = False) -> Exchange:
    return exchange(ASKED, capped=capped)


def message(whole: Whole) -> dict[str, object]:
    return dict(json.loads(whole.body)["choices"][0]["message"])


async def test_an_answer_passes_byte_for_byte() -> None:
    body = completion("Hi.").replace(b'"created": 1', b'"created" :1, "odd": [ ]')
    whole = await read_whole(Reply(body[:10], body[10:]), asked())
    assert whole.body == body
    assert whole.reply.complete


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        completion("", finish=None),
    ],
    ids=["nothing", "a page", "a list", "an object", "no choices", "no message", "neither words nor an end"],
)
async def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(UpstreamBadResponse):
        await read_whole(Reply(body), asked())


async def test_an_empty_answer_with_its_reason_is_one() -> None:
    assert (await read_whole(Reply(completion("", finish="length")), asked())).reply.empty


async def test_a_stream_that_came_unasked_is_put_together() -> None:
    usage = event(None, usage={"prompt_tokens": 7, "completion_tokens": 2})
    whole = await read_whole(streamed(*spoken("Hi", "!"), usage, DONE), asked())
    assert message(whole)["content"] == "Hi!"
    assert whole.reply.usage is not None
    assert whole.reply.usage.prompt == 7


async def test_a_stream_that_breaks_off_is_no_answer() -> None:
    with pytest.raises(UpstreamBadResponse):
        await read_whole(streamed(*spoken("Hi", "!")[:-1]), asked())


# ---------------------------------------------------------------------- at the cap
async def test_words_pass() -> None:
    body = completion("Done.")
    assert (await read_whole(Reply(body), asked(capped=True))).body == body


async def test_calls_beside_words_are_taken_out() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    body = completion("Done.", calls=[call("1")], usage=usage)
    whole = await read_whole(Reply(body), asked(capped=True))
    assert message(whole) == {"role": "assistant", "content": "Done."}
    assert json.loads(whole.body)["choices"][0]["finish_reason"] == "stop"
    assert whole.reply.usage is not None


@pytest.mark.parametrize(
    "body",
    [completion(None, calls=[call("1")]), completion(" \n", calls=[call("1")]), completion(""), completion(None)],
    ids=["a call", "a call after blanks", "nothing", "null"],
)
async def test_a_call_without_words_is_asked_again(body: bytes) -> None:
    with pytest.raises(OutOfTools):
        await read_whole(Reply(body), asked(capped=True))


async def test_below_the_cap_calls_pass() -> None:
    body = completion(None, calls=[call("1")])
    assert (await read_whole(Reply(body), asked())).body == body


def test_who_would_not_stop_is_stopped_with_a_sentence() -> None:
    whole = gave_up("m")
    assert message(whole)["content"] == GAVE_UP
    assert whole.reply.complete
