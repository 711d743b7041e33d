import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.policies.items import Call
from transom.proxy.errors import BadRequest
from transom.proxy.wire.messages import Opened, fragments, read_messages, read_messages_off_loop


class Characters:
    """Count characters, so that what was counted shows, and note the threads that asked."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def count(self, text: str) -> int:
        self.threads.add(threading.get_ident())
        return len(text)


def read(message: Any, **layout: Any) -> Any:
    raw = message if isinstance(message, bytes) else json.dumps(message, **layout).encode()
    return read_messages([raw], Characters())[0]


def digest(message: Any, **layout: Any) -> bytes:
    found: bytes = read(message, **layout).digest
    return found


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# Identity

TEXT = st.text(max_size=6)
SMALL = st.sampled_from(["", "a", "b", '"', "\\", ",", "é", "\x00", "[]", "null"])
PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, SMALL),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, SMALL),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, SMALL),
    st.dictionaries(st.sampled_from(["type", "text", "x"]), SMALL | st.lists(SMALL, max_size=2), max_size=3),
)
CALLS = st.builds(call, SMALL, SMALL, SMALL | st.sampled_from(['{"a": 1}', '{"a":1}', '{"a": "b c"}', "1 2", "12"]))
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"])},
    optional={
        "content": st.none() | SMALL | st.lists(PARTS, max_size=3),
        "name": SMALL,
        "tool_call_id": SMALL,
        "tool_calls": st.lists(CALLS, max_size=2),
    },
)


def identity(message: dict[str, Any]) -> Any:
    """Say what a message is, written down from the definition: the model that digests are held against."""
    content = message.get("content") or ("" if message.get("content") is None else message["content"])
    if isinstance(content, list):
        content = [
            ("text", part["text"])
            if part.get("type") == "text" and isinstance(part.get("text"), str)
            else ("part", json.dumps({k: v for k, v in part.items() if k != "cache_control"}, sort_keys=True))
            for part in content
        ]
        if len(content) == 1 and content[0][0] == "text":
            content = content[0][1]
    calls = []
    for one in message.get("tool_calls", []):
        arguments = one["function"]["arguments"]
        try:
            json.loads(arguments)
        except ValueError:
            pass
        else:
            arguments = "".join(piece if i % 2 else "".join(piece.split()) for i, piece in enumerate(quoted(arguments)))
        calls.append((one["id"], one["function"]["name"], arguments))
    return (message["role"], message.get("name"), message.get("tool_call_id"), content, calls)


def quoted(text: str) -> list[str]:
    """Split JSON at its strings; every second piece is one. Good enough for strings without escapes."""
    pieces = text.split('"')
    return [f'"{piece}"' if i % 2 else piece for i, piece in enumerate(pieces)]


@given(MESSAGES, MESSAGES)
def test_two_messages_share_a_digest_only_if_they_share_their_identity(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (digest(one) == digest(other)) == (identity(one) == identity(other))


@given(MESSAGES, st.data())
def test_a_changed_part_of_the_identity_changes_the_digest(message: dict[str, Any], data: Any) -> None:
    name = data.draw(st.sampled_from(["role", "name", "tool_call_id", "content"]))
    changed = message | {name: data.draw(SMALL)}
    assert (digest(message) == digest(changed)) == (identity(message) == identity(changed))


@given(MESSAGES, st.booleans(), st.sampled_from([None, 2]), st.data())
def test_another_serialisation_is_the_same_message(
    message: dict[str, Any], ascii_only: bool, indent: int | None, data: Any
) -> None:
    other = dict(data.draw(st.permutations(list(message.items()))))
    extras = {"reasoning_content": "hm", "refusal": None, "audio": {"id": "a"}, "cache_control": {"type": "ephemeral"}}
    other |= {name: extras[name] for name in data.draw(st.lists(st.sampled_from(list(extras)), unique=True))}
    assert digest(other, ensure_ascii=ascii_only, indent=indent) == digest(message)


@pytest.mark.parametrize(
    "same",
    [
        [{"role": "user"}, {"role": "user", "content": None}, {"role": "user", "content": ""}],
        [
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": ["hi"]},
        ],
        [
            {"role": "user", "content": [{"type": "x", "a": 1, "b": {"c": 2, "d": [3]}}]},
            {
                "role": "user",
                "content": [{"b": {"d": [3], "c": 2, "cache_control": 1}, "cache_control": {}, "a": 1, "type": "x"}],
            },
        ],
        [
            {"role": "assistant", "tool_calls": [call("1", "f", '{"a":[1,"b c"]}')]},
            {"role": "assistant", "tool_calls": [call("1", "f", '{ "a" : [ 1,\n"b c"] }\t')], "content": None},
            {"role": "assistant", "tool_calls": [call("1", "f", {"a": [1, "b c"]}) | {"extra_content": {"x": 1}}]},
        ],
        [{"role": "user", "content": "hi", "name": None}, {"role": "user", "content": "hi", "tool_calls": []}],
        [
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "assistant", "function_call": {"arguments": " {} ", "name": "f"}, "content": ""},
        ],
    ],
)
def test_these_are_one(same: list[dict[str, Any]]) -> None:
    assert len({digest(message) for message in same}) == 1
    assert len(digest(same[0])) == 16


def test_these_differ() -> None:
    different: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "a"},
        {"role": "user", "content": "a", "name": "b"},
        {"role": "user", "content": "a", "tool_call_id": "b"},
        {"role": "user", "content": ["a", "a"]},
        {"role": "user", "content": "aa"},
        {"role": "user", "content": '["a","a"]'},
        {"role": "user", "content": [{"type": "x", "a": 1}]},
        {"role": "user", "content": '[{"a":1,"type":"x"}]'},
        {"role": "user", "content": []},
        {"role": "user", "content": 5},
        {"role": "user", "content": [5]},
        {"role": "user", "content": {"a": 5}},
        b'{"role":"user","content":1e999}',
        b'{"role":"user","content":[1e999]}',
        {"role": "assistant", "tool_calls": [call("1", "f", "a b")]},
        {"role": "assistant", "tool_calls": [call("1", "f", "ab")]},
        {"role": "assistant", "tool_calls": [call("1", "f", '{"a":"b  c"}')]},
        {"role": "assistant", "tool_calls": [call("1", "f", '{"a":"b c"}')]},
        {"role": "assistant", "tool_calls": [call("1", "f", '{"a":"b c"}')] * 2},
        {"role": "assistant", "tool_calls": [call("2", "f", '{"a":"b c"}')]},
        {"role": "assistant", "tool_calls": [call("1", "g", '{"a":"b c"}')]},
    ]
    assert len({digest(message) for message in different}) == len(different)


def test_arguments_nested_beyond_reason_keep_their_white_space() -> None:
    deep = "[" * 5000 + "]" * 5000
    one = {"role": "assistant", "tool_calls": [call("1", "f", deep + " ")]}
    other = {"role": "assistant", "tool_calls": [call("1", "f", deep)]}
    assert digest(one) != digest(other)


# Forms


@pytest.mark.parametrize(
    ("message", "items", "tokens"),
    [
        ({"role": "user", "content": "hello"}, 1, 4 + 5),
        ({"role": "user"}, 1, 4),
        ({"role": "user", "content": ""}, 1, 4),
        ({"role": "user", "content": "hello", "name": "bob"}, 1, 4 + 5 + 3),
        ({"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two!"}]}, 1, 4 + 7),
        ({"role": "user", "content": ["one", "two!"]}, 1, 4 + 7),
        (
            {"role": "assistant", "content": "ab", "tool_calls": [call("1", "f", "{}"), call("2", "g", "{}")]},
            3,
            4 + 2 + 14,
        ),
        ({"role": "assistant", "content": None, "tool_calls": [call("1", "f", "{}"), call("2", "g", "{}")]}, 2, 4 + 14),
        ({"role": "assistant", "content": "", "tool_calls": [call("1", "f", "")]}, 1, 4 + 5),
        ({"role": "assistant", "tool_calls": []}, 1, 4),
        ({"role": "tool", "tool_call_id": "1", "content": "res"}, 1, 4 + 3),
        ({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, 1, 4 + 7),
        ({"role": "function", "name": "f", "content": "res"}, 1, 4 + 3 + 1),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, 1, 4 + 2),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}, 1, 4 + 765),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x", "detail": "low"}}]}, 1, 4 + 85),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "https://x"}]}, 1, 4 + 765),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x", "detail": "low"}]}, 1, 4 + 85),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5, "detail": 6}}]}, 1, 4 + 765),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A" * 64_000}}]}, 1, 4 + 30),
        ({"role": "user", "content": [{"type": "x", "y": "z"}]}, 1, 4 + 5),
        ({"role": "user", "content": [7, None]}, 1, 4 + 2),
        ({"role": "user", "content": 1234567}, 1, 4 + 2),
    ],
)
def test_items_and_tokens(message: dict[str, Any], items: int, tokens: int) -> None:
    found = read(message)
    assert (found.items, found.tokens) == (items, tokens)
    assert found.role == message["role"]
    assert json.loads(found.payload) == message


@pytest.mark.parametrize(
    ("message", "calls", "answers"),
    [
        ({"role": "user", "content": "x", "tool_call_id": "1"}, (), None),
        ({"role": "tool", "tool_call_id": "1"}, (), "1"),
        ({"role": "tool", "content": "x"}, (), ""),
        ({"role": "tool", "tool_call_id": 5}, (), ""),
        ({"role": "function", "name": "f"}, (), "function:f"),
        ({"role": "function"}, (), "function:"),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            (Call("function:f", "f", "{}"),),
            None,
        ),
        ({"role": "assistant", "function_call": {"name": None}}, (Call("function:", "", ""),), None),
        ({"role": "assistant", "function_call": "auto"}, (), None),
        ({"role": "assistant", "tool_calls": [call("1", "f", "not json")]}, (Call("1", "f", "not json"),), None),
        (
            {"role": "assistant", "tool_calls": [call("1", "f", {"b": 1, "a": []})]},
            (Call("1", "f", '{"a":[],"b":1}'),),
            None,
        ),
        ({"role": "assistant", "tool_calls": [call("1", "f", None)]}, (Call("1", "f", ""),), None),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, (Call("1", "", ""),), None),
        ({"role": "assistant", "tool_calls": [{"id": None, "function": "f"}]}, (Call("", "", ""),), None),
        ({"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "f"}}]}, (Call("7", "f", ""),), None),
        ({"role": "assistant", "tool_calls": ["x", 5]}, (Call("", "", "x"), Call("", "", "5")), None),
        ({"role": "assistant", "tool_calls": {"id": "1"}}, (), None),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x y"}}],
            },
            (Call("1", "f", "x y"),),
            None,
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "custom": {"name": "f", "input": 5}}]},
            (Call("1", "f", "5"),),
            None,
        ),
        ({"role": "assistant", "tool_calls": [call("1", "f", "")], "name": 5}, (Call("1", "f", ""),), None),
    ],
)
def test_calls_and_results(message: dict[str, Any], calls: tuple[Call, ...], answers: str | None) -> None:
    found = read(message)
    assert (found.calls, found.answers) == (calls, answers)
    assert json.loads(found.payload) == message


def test_a_payload_is_the_slice_itself() -> None:
    raw = b'{"role" : "user", "content":"\\u00e9\\ud83d\\ude00", "x":1.0e2 }'
    assert read(raw).payload is raw


def test_of_a_repeated_name_the_last_counts_and_the_bytes_stay() -> None:
    raw = b'{"role":"system","content":"a","role":"user","content":"bc"}'
    found = read(raw)
    assert (found.role, found.tokens, found.payload) == ("user", 6, raw)
    assert found.digest == digest({"role": "user", "content": "bc"})


def test_half_an_emoji_is_replaced_in_the_payload() -> None:
    found = read(b'{"role":"user","content":"a\\ud83d"}')
    assert found.payload == b'{"role":"user","content":"a\\ufffd"}'
    assert found.digest == digest({"role": "user", "content": "a�"})


def test_numbers_out_of_range_pass() -> None:
    raw = b'{"role":"user","content":[{"type":"x","y":' + b"9" * 5000 + b' }],"z":1e999}'
    found = read(raw)
    assert found.payload is raw
    assert found.tokens > 1000
    assert found.digest != digest(raw.replace(b"9", b"8"))


NESTED = b"[" * 97 + b"]" * 97


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"{}", "messages[7].role"),
        (b'{"role":null}', "messages[7].role"),
        (b'{"role":5,"content":"x"}', "messages[7].role"),
        (b'{"content":"x"}', "messages[7].role"),
        (b"[]", "messages[7].role"),
        (b'"user"', "messages[7].role"),
        (b"null", "messages[7].role"),
        (b'{"role":"user","content":"\xff"}', "messages[7]"),
        (b'{"role":"user","x":"\xed\xa0\xbd"}', "messages[7]"),
        (b'{"role":"user","content":[' + NESTED + b"]}", "messages[7]"),
        (b'{"role":"user","x":[' + NESTED + b"]}", "messages[7]"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(raw: bytes, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_messages([b'{"role":"user"}', raw], Characters(), start=6)
    assert caught.value.param == param
    assert caught.value.status == 400


def test_a_hundred_levels_pass() -> None:
    assert read(b'{"role":"user","content":' + NESTED + b"}").items == 1


@given(
    st.fixed_dictionaries(
        {"role": TEXT},
        optional=dict.fromkeys(
            ["content", "name", "tool_call_id", "tool_calls", "function_call", "refusal", "audio"],
            st.recursive(
                st.none() | st.integers() | TEXT,
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(st.sampled_from(["id", "type", "text", "function", "name", "arguments"]), inner)
                ),
                max_leaves=5,
            ),
        ),
    )
)
def test_any_object_with_a_role_is_a_message(message: dict[str, Any]) -> None:
    found = read(message)
    assert found.role == message["role"]
    assert found.items >= 1
    assert found.tokens >= 4
    assert fragments(found.payload).role == message["role"]


# Threads


async def test_few_bytes_are_read_where_one_stands() -> None:
    counter = Characters()
    found = await read_messages_off_loop([b'{"role":"user","content":"a"}'], counter)
    assert [message.tokens for message in found] == [5]
    assert counter.threads == {threading.get_ident()}


async def test_many_bytes_are_read_in_a_thread() -> None:
    counter = Characters()
    slices = [json.dumps({"role": "user", "content": "a" * 1000}).encode()] * 100
    found = await read_messages_off_loop(slices, counter)
    assert found == read_messages(slices, Characters())
    assert threading.get_ident() not in counter.threads


async def test_errors_in_the_thread_arrive() -> None:
    with pytest.raises(BadRequest) as caught:
        await read_messages_off_loop([b'{"role":"user","content":"' + b"a" * 70_000 + b'"}', b"{}"], Characters(), 3)
    assert caught.value.param == "messages[4].role"


# Fragments


@pytest.mark.parametrize(
    ("message", "opened"),
    [
        ({"role": "user", "content": "hi", "name": "bob"}, Opened("user", "bob", ["hi"], (), None)),
        ({"role": "user"}, Opened("user", None, [], (), None)),
        (
            {"role": "user", "content": ["a", "", {"type": "text", "text": "b"}]},
            Opened("user", None, ["a", "b"], (), None),
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:…"}},
                    {"type": "input_audio", "input_audio": {"data": "AAAA"}},
                    {"type": "file", "file": {"file_data": "AAAA"}},
                    {"type": "what", "is": "it"},
                    {"is": "it"},
                    5,
                    None,
                ],
            },
            Opened("user", None, ["[image]", "[audio]", "[file]", *["[other content]"] * 3], (), None),
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "thinking", "text": "hm"}, {"type": "refusal", "refusal": "no"}],
                "reasoning_content": "hm",
                "refusal": "never",
                "tool_calls": [call("1", "f", "{}")],
            },
            Opened("assistant", None, ["no", "never"], (Call("1", "f", "{}"),), None),
        ),
        ({"role": "assistant", "audio": {"transcript": "said"}}, Opened("assistant", None, ["said"], (), None)),
        ({"role": "assistant", "audio": {"id": "a"}}, Opened("assistant", None, ["[audio]"], (), None)),
        ({"role": "tool", "tool_call_id": "1", "content": "res"}, Opened("tool", None, ["res"], (), "1")),
        ({"role": "function", "name": "f", "content": "r"}, Opened("function", "f", ["r"], (), "function:f")),
        ({"role": "user", "content": 5, "name": 5}, Opened("user", None, ["[other content]"], (), None)),
    ],
)
def test_fragments_are_what_a_reader_needs(message: dict[str, Any], opened: Opened) -> None:
    assert fragments(json.dumps(message).encode()) == opened
