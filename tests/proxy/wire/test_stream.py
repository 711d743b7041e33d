import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.wire.reply import Usage
from transom.proxy.wire.stream import StreamReader, is_usage_event

DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None, finish: Any = None, index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]} | fields


def event(value: Any, end: str = "\n") -> bytes:
    return ("data: " + json.dumps(value) + end + end).encode()


def read(*chunks: Any, done: bool = True) -> StreamReader:
    reader = StreamReader()
    reader.feed_block(b"".join(map(event, chunks)) + (DONE if done else b""))
    return reader


def message(*deltas: dict[str, Any]) -> Any:
    return json.loads(read(*map(chunk, deltas)).reply().messages[0])


def calls(*pieces: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    made = message(*({"tool_calls": [piece]} for piece in pieces))["tool_calls"]
    return [(call.get("id"), call["function"].get("name"), call["function"].get("arguments")) for call in made]


def piece(index: Any = None, id: Any = None, name: Any = None, arguments: Any = None) -> dict[str, Any]:  # noqa: A002
    function = {"name": name, "arguments": arguments}
    found = {"index": index, "id": id, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in found.items() if v is not None}


# Assembly


def test_a_stream_becomes_the_message_a_json_answer_would_have_held() -> None:
    reader = read(
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    )
    reply = reader.reply()
    assert [json.loads(one) for one in reply.messages] == [{"role": "assistant", "content": "Hello"}]
    assert (reply.id, reply.finish, reply.usage) == ("c1", ["stop"], Usage(3, 0, 2))
    assert (reply.complete, reply.empty) == (True, False)


@given(st.lists(st.text(max_size=5), max_size=12))
def test_texts_are_joined_in_order(texts: list[str]) -> None:
    assert message({"role": "assistant"}, *({"content": text} for text in texts))["content"] == (
        "".join(texts) if texts else None
    )


def test_choices_are_kept_apart() -> None:
    reply = read(
        chunk({"content": "a"}, index=1),
        chunk({"content": "b"}, index=0),
        chunk({"content": "c"}, "length", index=1),
        chunk({}, "stop", index=0),
    ).reply()
    assert [json.loads(one)["content"] for one in reply.messages] == ["b", "ac"]
    assert reply.finish == ["stop", "length"]


def test_a_choice_without_an_index_is_the_first() -> None:
    assert (
        len(read({"choices": [{"delta": {"content": "a"}}]}, chunk({"content": "b"}, index="x")).reply().messages) == 1
    )


def test_calls_are_put_together_by_index() -> None:
    assert calls(
        piece(0, "a", "f", ""),
        piece(0, arguments='{"x"'),
        piece(1, "b", "g", "{"),
        piece(0, arguments=":1}"),
        piece(1, arguments="}"),
    ) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ([piece(0, "a", "f", "1"), piece(0, "b", "f", "2")], [("a", "f", "1"), ("b", "f", "2")]),
        (
            [piece(0, "a", "f", "1"), piece(0, "b", "f", "2"), piece(0, arguments="3")],
            [("a", "f", "1"), ("b", "f", "23")],
        ),
        (
            [piece(0, "a", "f", "1"), piece(0, "b", "f", "2"), piece(0, "a", arguments="3")],
            [("a", "f", "13"), ("b", "f", "2")],
        ),
        ([piece(0, "a", "f", "1"), piece(1, "a", "f", "2")], [("a", "f", "1"), ("a", "f", "2")]),
        ([piece(0, "a", "f", "1"), piece(0, "a", "f", "2")], [("a", "f", "12")]),
        ([piece(0, "a", "f", "1"), piece(0, "", arguments="2")], [("a", "f", "12")]),
        ([piece(0, None, "f", "1"), piece(0, "a", arguments="2")], [("a", "f", "12")]),
        ([piece(None, "a", "f", "1"), piece(None, "b", "f", "2")], [("a", "f", "1"), ("b", "f", "2")]),
        ([piece(None, "a", "f", "1"), piece(None, "a", arguments="2")], [("a", "f", "12")]),
        ([piece(None, "a", "f", "1"), piece(arguments="2")], [("a", "f", "12")]),
        ([piece(None, None, "f", "1"), piece(None, None, "g", "2")], [(None, "f", "1"), (None, "g", "2")]),
        ([piece(arguments="1")], [(None, None, "1")]),
        ([piece(0, "a", "ge", ""), piece(0, None, "t", "")], [("a", "get", "")]),
        ([piece(0, "a", "get", ""), piece(0, None, "get", "1")], [("a", "get", "1")]),
        ([piece(0, "a", "f", {"x": [1]})], [("a", "f", '{"x":[1]}')]),
        ([piece(0, "a", 5, 6), piece(0, "a", "f", "1")], [("a", "f", "1")]),
    ],
)
def test_calls_of_servers_that_number_them_otherwise(pieces: list[Any], found: list[Any]) -> None:
    assert calls(*pieces) == found


def test_several_calls_in_one_delta() -> None:
    made = message({"tool_calls": [piece(0, "a", "f", "1"), piece(1, "b", "g", "2")]})["tool_calls"]
    assert [call["id"] for call in made] == ["a", "b"]


def test_unknown_fields_of_calls_are_kept() -> None:
    made = message(
        {"tool_calls": [piece(0, "a", "f", "1") | {"type": "function", "extra_content": {"google": {"sig": "x"}}}]},
        {"tool_calls": [{"index": 0, "type": "", "note": "ab", "function": None, "n": 1}]},
        {"tool_calls": [{"index": 0, "note": "c", "n": 2}]},
    )["tool_calls"]
    assert made == [
        {
            "id": "a",
            "function": {"name": "f", "arguments": "1"},
            "type": "function",
            "extra_content": {"google": {"sig": "x"}},
            "note": "abc",
            "n": 2,
        }
    ]


def test_custom_calls_are_put_together() -> None:
    made = message(
        {"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "y"}}]},
    )["tool_calls"]
    assert made == [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}]


def test_legacy_calls_are_put_together() -> None:
    made = message({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}})
    assert made["function_call"] == {"name": "f", "arguments": "{}"}


def test_other_fields_are_joined_or_the_last_stays() -> None:
    made = message(
        {"reasoning_content": "a", "x": 1, "list": [1], "sound": {"a": 1}, "audio": {"id": "i", "data": "AA"}},
        {"reasoning_content": "b", "x": 2, "list": [2], "sound": {"b": 1}, "audio": {"data": "BB", "id": "i"}},
        {"reasoning_content": None, "x": None},
    )
    assert made == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "ab",
        "x": 2,
        "list": [1, 2],
        "sound": {"b": 1},
        "audio": {"id": "i", "data": "AABB"},
    }


def test_content_may_come_as_parts() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    assert message({"content": [thought]}, {"content": "a"})["content"] == [thought, {"type": "text", "text": "a"}]
    assert message({"content": "a"}, {"content": [thought]})["content"] == [{"type": "text", "text": "a"}, thought]


@pytest.mark.parametrize("role", [None, "", 5])
def test_a_role_that_is_none_changes_nothing(role: Any) -> None:
    assert message({"role": "developer"}, {"role": role, "content": "x"})["role"] == "developer"
    assert message({"role": role, "content": "x"})["role"] == "assistant"


def test_an_emoji_in_two_halves_becomes_whole() -> None:
    assert message({"content": "\ud83d"}, {"content": "\ude00"})["content"] == "😀"


def test_half_an_emoji_becomes_the_replacement_character() -> None:
    made = message({"content": "a\ud83d"}, {"tool_calls": [piece(0, "x", "f", "\ude00") | {"l": ["\ud83d"]}]})
    assert made["content"] == "a�"
    assert made["tool_calls"][0]["function"]["arguments"] == "�"
    assert made["tool_calls"][0]["l"] == ["�"]


@pytest.mark.parametrize("levels", [98, 600])
@pytest.mark.parametrize(("text", "kept"), [(b"a", "a"), (b"\\ud83d", "�")])
def test_of_a_message_nested_beyond_reason_the_text_is_kept(levels: int, text: bytes, kept: str) -> None:
    reader = StreamReader()
    deep = b"[" * levels + b"]" * levels
    reader.feed(
        b'{"choices":[{"index":0,"delta":{"content":"' + text + b'","x":' + deep + b'},"finish_reason":"stop"}]}'
    )
    assert json.loads(reader.reply().messages[0]) == {"role": "assistant", "content": kept}


def test_the_message_of_the_parallel_chunks_is_the_same_whatever_came_before() -> None:
    reader = read(chunk({"content": "a"}), done=False)
    first = reader.reply()
    reader.feed_block(event(chunk({"content": "b"}, "stop")))
    assert json.loads(first.messages[0])["content"] == "a"
    assert json.loads(reader.reply().messages[0])["content"] == "ab"


def test_a_hundred_equal_chunks_are_a_hundred() -> None:
    assert message(*[{"content": "x"}] * 100)["content"] == "x" * 100


# Framing

CHUNKS = st.lists(
    st.builds(
        chunk,
        st.dictionaries(
            st.sampled_from(["content", "reasoning", "x"]),
            st.text(max_size=4) | st.sampled_from(["data: ", "\n\ndata: [DONE]\n\n", "\r", "\u2028"]),
            max_size=2,
        ),
    ),
    max_size=5,
)


@given(CHUNKS, st.booleans(), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_blocks_and_single_events_are_read_alike(chunks: list[Any], done: bool, end: str, ascii_only: bool) -> None:
    block = "".join(f"data: {json.dumps(one, ensure_ascii=ascii_only)}{end}{end}" for one in chunks)
    block += f"data: [DONE]{end}{end}" if done else ""
    whole, single = StreamReader(), StreamReader()
    whole.feed_block(block.encode())
    for one in chunks:
        single.feed(json.dumps(one).encode())
    if done:
        single.feed(b"[DONE]")
    assert whole.reply() == single.reply()
    assert whole.done_seen == single.done_seen == done
    assert not whole.malformed_seen


@pytest.mark.parametrize(
    "block",
    [
        b": comment\n\n" + event(chunk({"content": "a"})) + b": more\n\n" + event(chunk({"content": "b"})),
        event(chunk({"content": "a"})) + b"event: x\nid: 5\n" + event(chunk({"content": "b"})),
        event(chunk({"content": "a"})) + event(chunk({"content": "b"})).replace(b"data: ", b"data:"),
        event(chunk({"content": "a"})).replace(b', "choices"', b',\ndata: "choices"') + event(chunk({"content": "b"})),
        event(chunk({"content": "a"})) + event(chunk({"content": "b"}), "\r\n"),
    ],
)
def test_unusual_frames_are_read_too(block: bytes) -> None:
    reader = StreamReader()
    reader.feed_block(block)
    assert json.loads(reader.reply().messages[0])["content"] == "ab"
    assert not reader.malformed_seen


def test_blocks_of_comments_change_nothing() -> None:
    reader = StreamReader()
    reader.feed_block(b": ping\n\n")
    reader.feed_block(b"")
    reader.feed(b"")
    assert (reader.malformed_seen, reader.reply().messages) == (False, [])


# Flags


def test_flags_rise_as_things_are_seen() -> None:
    reader = StreamReader()

    def seen() -> list[bool]:
        return [reader.content_seen, reader.tool_call_seen, reader.finishes > 0, reader.done_seen]

    for value, flags in [
        (chunk({"role": "assistant", "content": "", "tool_calls": []}), [False, False, False, False]),
        (chunk({"reasoning_content": "hm"}), [False, False, False, False]),
        (chunk({"content": "a"}), [True, False, False, False]),
        (chunk({"tool_calls": [piece(0, "a", "f", "")]}), [True, True, False, False]),
        (chunk({}, "tool_calls"), [True, True, True, False]),
    ]:
        reader.feed_block(event(value))
        assert seen() == flags
    reader.feed_block(DONE)
    assert seen() == [True, True, True, True]
    assert [reader.error_seen, reader.malformed_seen] == [False, False]


def test_refusals_are_content_and_legacy_calls_are_calls() -> None:
    assert read(chunk({"refusal": "no"})).content_seen
    assert read(chunk({"function_call": {"name": "f"}})).tool_call_seen


@pytest.mark.parametrize("error", [{"error": {"message": "x"}}, {"error": "x"}, {"type": "error", "message": "x"}])
def test_an_error_in_the_stream_is_seen(error: Any) -> None:
    reader = read(chunk({"content": "a"}, "stop"), error)
    assert reader.error_seen
    assert not reader.reply().complete


def test_null_is_no_error() -> None:
    assert not read(chunk({"content": "a"}, error=None)).error_seen


@pytest.mark.parametrize(
    "payload",
    [b"{", b"x", b"[]", b"5", b"null", b'{"a":', b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'"\\ud83d"'],
)
def test_what_is_no_json_object_is_malformed(payload: bytes) -> None:
    reader = StreamReader()
    reader.feed_block(event(chunk({"content": "a"}, "stop")) + b"data: " + payload + b"\n\n" + DONE)
    assert reader.malformed_seen
    assert json.loads(reader.reply().messages[0])["content"] == "a"
    assert not reader.reply().complete


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[{"delta":{"content":"a\xff"}}]}',
        b'{"choices":[{"delta":{"content":"a\\ufffd"}}],"n":' + b"9" * 5000 + b"}",
        b'{"choices":[{"delta":{"content":"a\\ufffd","n":1e999}}]}',
        b'{"choices":[{"delta":{"content":"a\\ufffd","n":NaN}}]}',
    ],
)
def test_what_a_lenient_reader_can_read_is_read(payload: bytes) -> None:
    reader = StreamReader()
    reader.feed(payload)
    assert json.loads(reader.reply().messages[0])["content"] == "a�"
    assert not reader.malformed_seen


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": {}},
        {"choices": ["x", None, 5]},
        {"choices": None, "usage": 5, "id": 5},
        {},
    ],
)
def test_odd_chunks_change_nothing(odd: Any) -> None:
    reader = read(odd, chunk({"content": "a"}, "stop"))
    assert [json.loads(one)["content"] for one in reader.reply().messages] == ["a"]
    assert reader.reply().complete


def test_odd_deltas_are_kept_as_well_as_can_be() -> None:
    made = message(
        {"tool_calls": ["x", 5, None], "content": {"a": 1}, "function_call": "auto"},
        {"tool_calls": {"a": 1}, "audio": "x"},
    )
    assert made["content"] == {"a": 1}
    assert read(chunk(None)).reply().empty


# Ends


@pytest.mark.parametrize(
    ("chunks", "done", "complete"),
    [
        ([chunk({"content": "a"})], False, False),
        ([chunk({"content": "a"}, "stop")], False, True),
        ([chunk({"content": "a"})], True, True),
        ([chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1)], False, False),
        ([chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop", index=1)], False, True),
        ([], False, False),
    ],
)
def test_a_reply_is_complete_once_every_choice_or_the_stream_ended(
    chunks: list[Any], done: bool, complete: bool
) -> None:
    assert read(*chunks, done=done).reply().complete is complete


@pytest.mark.parametrize(
    "chunks", [[], [chunk({})], [chunk({"role": "assistant", "content": ""}, "stop")], [{"choices": []}]]
)
def test_a_stream_that_says_nothing_is_empty(chunks: list[Any]) -> None:
    assert read(*chunks).reply().empty


@pytest.mark.parametrize("delta", [{"content": "a"}, {"reasoning": "a"}, {"tool_calls": [{}]}, {"refusal": "a"}])
def test_a_stream_that_says_something_is_not(delta: Any) -> None:
    assert not read(chunk(delta)).reply().empty


def test_a_finish_reason_of_another_type_is_one() -> None:
    reply = read(chunk({"content": "a"}, 7)).reply()
    assert reply.finish == ["7"]


def test_the_last_plausible_usage_counts() -> None:
    reply = read(
        chunk({"content": "a"}, usage={"prompt_tokens": 4}),
        chunk({}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 1}),
        {"choices": [], "usage": {"prompt_tokens": -1}},
        {"choices": [], "usage": None},
    ).reply()
    assert reply.usage == Usage(5, 0, 1)


@pytest.mark.parametrize(
    ("payload", "is_usage"),
    [
        (b'{"id":"c","choices":[],"usage":{"prompt_tokens":1}}', True),
        (b'{"usage": {}, "choices": [ ]}', True),
        (b'{"choices":[],"usage":null}', False),
        (b'{"choices":[],"prompt_filter_results":[]}', False),
        (b'{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}', False),
        (b'{"usage":{"prompt_tokens":1}}', False),
        (b'"usage"', False),
        (b'{"usage"', False),
        (b"[DONE]", False),
        (b"", False),
    ],
)
def test_the_usage_event_is_told(payload: bytes, is_usage: bool) -> None:
    assert is_usage_event(payload) is is_usage
