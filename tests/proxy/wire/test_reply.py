import json
from typing import Any

import pytest

from transom.proxy.errors import UpstreamBadResponse
from transom.proxy.wire.reply import Reply, Usage, parse_reply, read_usage, says_something


def answer(*messages: Any, finish: Any = "stop", **fields: Any) -> bytes:
    choices = [{"index": i, "message": message, "finish_reason": finish} for i, message in enumerate(messages)]
    return json.dumps({"id": "c1", "choices": choices} | fields).encode()


HELLO = {"role": "assistant", "content": "hello"}


def test_an_answer_is_its_message_end_and_usage() -> None:
    reply = parse_reply(answer(HELLO, usage={"prompt_tokens": 5, "completion_tokens": 1}))
    assert reply == Reply("c1", [json.dumps(HELLO).encode()], ["stop"], Usage(5, 0, 1), complete=True, empty=False)


def test_the_message_keeps_its_bytes() -> None:
    message = b'{ "role":"assistant", "content":"\\u00e9\xc3\xa9", "tool_calls":[{"id":"a","x":1.0e2}] }'
    assert parse_reply(b'{"choices":[{"message": ' + message + b" }]}").messages == [message]


def test_choices_stand_in_the_order_of_their_indexes() -> None:
    choices = [{"index": i, "message": HELLO | {"content": str(i)}, "finish_reason": f"r{i}"} for i in (2, 0, 1)]
    reply = parse_reply(json.dumps({"choices": choices}).encode())
    assert [json.loads(message)["content"] for message in reply.messages] == ["0", "1", "2"]
    assert reply.finish == ["r0", "r1", "r2"]
    assert reply.id is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Bad gateway</body></html>",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":null}',
        b'{"choices":{}}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":null}]}',
        b'{"choices":[{"message":"x"}]}',
        b'{"choices":[{"text":"x"}]}',
        b'{"choices":["x"]}',
        b'{"error":{"message":"no"}}',
        b'data: {"choices":[]}\n\n',
        b'{"choices":[{"message":{"a":' + b"[" * 98 + b"]" * 98 + b"}}]}",
        b'{"choices":[{"message":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
    ],
)
def test_what_is_no_answer_is_a_bad_response(body: bytes) -> None:
    with pytest.raises(UpstreamBadResponse) as caught:
        parse_reply(body)
    assert caught.value.status == 502


@pytest.mark.parametrize(
    "message", [{}, {"role": "assistant"}, {"role": "assistant", "content": None, "refusal": None, "annotations": []}]
)
def test_a_message_that_says_nothing_is_empty(message: Any) -> None:
    assert parse_reply(answer(message)).empty
    assert parse_reply(answer(message)).complete
    assert not parse_reply(answer(message, finish=None)).complete


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "x"},
        {"refusal": "no"},
        {"tool_calls": [{"id": "a"}]},
        {"function_call": {"name": "f"}},
        {"reasoning_content": "hm"},
        {"audio": {"id": "a"}},
    ],
)
def test_a_message_that_says_something_is_not(fields: Any) -> None:
    message = {"role": "assistant", "content": None} | fields
    assert says_something(message)
    reply = parse_reply(answer(message, finish=None))
    assert (reply.empty, reply.complete, reply.finish) == (False, True, [None])


def test_one_choice_that_speaks_is_enough() -> None:
    assert not parse_reply(answer({"role": "assistant"}, HELLO)).empty


def test_odd_values_pass() -> None:
    raw = b'{"id":5,"choices":[{"index":"x","finish_reason":7,"message":{"n":1e999}}],"usage":"many"}'
    assert parse_reply(raw) == Reply(
        None, [b'{"n":1e999,"role":"assistant"}'], [None], None, complete=True, empty=False
    )


def test_an_unknown_finish_reason_passes() -> None:
    assert parse_reply(answer(HELLO, finish="because")).finish == ["because"]


def test_half_an_emoji_and_bad_bytes_are_replaced() -> None:
    assert parse_reply(b'{"choices":[{"message":{"content":"\\ud83d"}}]}').messages == [
        b'{"content":"\\ufffd","role":"assistant"}'
    ]
    assert parse_reply(b'{"choices":[{"message":{"content":"\xff"}}]}').messages == [
        '{"content":"�","role":"assistant"}'.encode()
    ]


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(10, 0, 2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}}, Usage(10, 8, 0)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 8}, Usage(10, 8, 0)),
        ({"prompt_tokens": 10, "cache_read_input_tokens": 8, "completion_tokens": None}, Usage(10, 8, 0)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 80}}, Usage(10, 10, 0)),
        ({"prompt_tokens": 10, "prompt_tokens_details": [], "completion_tokens": -1}, Usage(10, 0, 0)),
        (None, None),
        ("x", None),
        ({}, None),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": -5}, None),
        ({"prompt_tokens": 0}, None),
        ({"prompt_tokens": 10**12}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": 1.5}, None),
        ({"prompt_tokens": "10"}, None),
    ],
)
def test_implausible_usage_is_ignored(usage: Any, read: Usage | None) -> None:
    assert read_usage(usage) == read
