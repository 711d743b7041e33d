import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.errors import BadRequest
from transom.proxy.wire.chat import ChatCall, compose, count_overhead, parse_call, parse_call_off_loop

TEXT = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"])}, optional={"content": TEXT, "x": JSON}),
    min_size=1,
    max_size=6,
)
NAMES = ["stream", "stream_options", "tools", "tool_choice", "n", "max_tokens", "metadata", "user", "temperature"]
BODIES = st.tuples(
    st.dictionaries(st.sampled_from(NAMES) | TEXT, JSON, max_size=5), st.text(min_size=1, max_size=8), MESSAGES
).flatmap(lambda made: st.permutations(list((made[0] | {"model": made[1], "messages": made[2]}).items())).map(dict))
LAYOUTS = st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.none() | st.just(1)})


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields).encode()


def forward(call: ChatCall, payloads: list[bytes] | None = None, **options: Any) -> bytes:
    settings: dict[str, Any] = {"model": call.model, "stream_usage": False} | options
    return compose(call, call.slices if payloads is None else payloads, **settings)


class Characters:
    def count(self, text: str) -> int:
        return len(text)


@given(BODIES, LAYOUTS)
def test_an_unchanged_body_is_the_same_object(value: dict[str, Any], layout: dict[str, Any]) -> None:
    raw = json.dumps(value, **layout).encode()
    call = parse_call(raw)
    assert forward(call) is raw
    assert forward(call, tuple(bytes(bytearray(piece)) for piece in call.slices)) is raw  # type: ignore[arg-type]
    assert [json.loads(piece) for piece in call.slices] == value["messages"]


@given(BODIES, LAYOUTS, st.data())
def test_dropped_messages_are_all_that_changes(value: dict[str, Any], layout: dict[str, Any], data: Any) -> None:
    call = parse_call(json.dumps(value, **layout).encode())
    kept = data.draw(st.lists(st.sampled_from(range(len(call.slices))), unique=True).map(sorted))
    sent = json.loads(forward(call, [call.slices[place] for place in kept]))
    assert sent == value | {"messages": [value["messages"][place] for place in kept]}
    assert list(sent) == list(value)


@given(BODIES, LAYOUTS)
def test_another_model_is_all_that_changes(value: dict[str, Any], layout: dict[str, Any]) -> None:
    call = parse_call(json.dumps(value, **layout).encode())
    sent = json.loads(forward(call, model="the other"))
    assert sent == value | {"model": "the other"}
    assert list(sent) == list(value)


def test_values_that_stay_keep_their_bytes() -> None:
    raw = (
        b'{"messages":[{"role":"user"}, {"role" : "user"}],"a":1.0e2, "model":"m" ,"b":{ "\\u0041":12345678901234567890'
        b'},"c":"\\u00e9\xc3\xa9","d":null}'
    )
    call = parse_call(raw)
    assert forward(call, call.slices[1:]) == (
        b'{"messages":[{"role" : "user"}],"a":1.0e2,"model":"m","b":{ "\\u0041":12345678901234567890'
        b'},"c":"\\u00e9\xc3\xa9","d":null}'
    )


def test_other_payloads_are_sent_as_they_are() -> None:
    call = parse_call(body())
    assert json.loads(forward(call, [b'{"role":"system"}', *call.slices]))["messages"][0] == {"role": "system"}


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("absent", {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": False, "x": 1}, {"include_usage": True, "x": 1}),
        ({"x": 1}, {"x": 1, "include_usage": True}),
        (None, None),
        (5, 5),
        ([1], [1]),
    ],
)
def test_usage_of_a_stream_is_asked_for_where_there_is_an_object(options: Any, sent: Any) -> None:
    call = parse_call(body(stream=True) if options == "absent" else body(stream=True, stream_options=options))
    result = json.loads(forward(call, stream_usage=True))["stream_options"]
    assert result == sent
    if isinstance(sent, dict):
        assert list(result) == list(sent)


def test_a_stream_that_asks_for_usage_is_left_alone() -> None:
    raw = body(stream=True, stream_options={"include_usage": True})
    call = parse_call(raw)
    assert call.include_usage
    assert forward(call, stream_usage=True) is raw


@pytest.mark.parametrize("stream", [False, None, "true", 1])
def test_usage_is_asked_for_in_streams_only(stream: Any) -> None:
    raw = body(stream=stream)
    assert not parse_call(raw).stream
    assert forward(parse_call(raw), stream_usage=True) is raw


def test_usage_is_not_asked_for_unless_wanted() -> None:
    raw = body(stream=True)
    assert forward(parse_call(raw), stream_usage=False) is raw


def test_tool_choice_is_replaced_or_added() -> None:
    for choice in ({}, {"tool_choice": {"type": "function"}}):
        fields: dict[str, Any] = {"tools": [{}], **choice}
        sent = json.loads(forward(parse_call(body(**fields)), tool_choice=b'"none"'))
        assert sent["tool_choice"] == "none"
        assert sent["tools"] == [{}]


def test_tools_can_be_left_out() -> None:
    raw = body(tools=[{}], tool_choice="auto", seed=1)
    sent = json.loads(forward(parse_call(raw), drop_tools=True))
    assert sent.keys() == {"model", "messages", "seed"}
    plain = body(seed=1)
    assert forward(parse_call(plain), drop_tools=True) is plain


def test_of_repeated_names_the_last_is_read_and_sent() -> None:
    raw = (
        b'{"model":"first","stream":true,"messages":[{"role":"user"}],"model":"last","messages":[{"role":"system"}],'
        b'"a":1,"a":2,"stream":false}'
    )
    call = parse_call(raw)
    assert (call.model, call.stream, call.slices) == ("last", False, [b'{"role":"system"}'])
    assert forward(call) == b'{"model":"last","stream":false,"messages":[{"role":"system"}],"a":2}'


def test_a_repeated_name_is_seen_through_escapes() -> None:
    raw = b'{"model":"first","messages":[{"role":"user"}],"mod\\u0065l":"last"}'
    assert forward(parse_call(raw)) == b'{"model":"last","messages":[{"role":"user"}]}'


def test_half_an_emoji_is_replaced_and_the_rest_stays() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"\\ud83d \\ud83d\\ude00 \\\\ud83d"}],"user":"\\ude00"}'
    call = parse_call(raw)
    mended = b'{"model":"m","messages":[{"role":"user","content":"\\ufffd \\ud83d\\ude00 \\\\ud83d"}],"user":"\\ufffd"}'
    assert forward(call) == mended
    assert call.user == "�"


DEEP = b"[" * 1_000_000 + b"]" * 1_000_000  # Python 3.14 reads as deep as its stack allows


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b"", "body"),
        (b"  \n", "body"),
        (b"\xef\xbb\xbf" + body(), "body"),
        (body().decode().encode("utf-16"), "body"),
        (b"[]", "body"),
        (b'"text"', "body"),
        (b"null", "body"),
        (b"17", "body"),
        (b"{", "body"),
        (b"<html>", "body"),
        (body() + b"x", "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"a":NaN}', "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"a":-Infinity}', "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"\\ud83d":\\ud83d}', "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"\xff":1}', "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"user":"\xff"}', "user"),
        (b'{"model":"m","messages":' + DEEP + b"}", "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"a":' + DEEP + b"}", "body"),
        (b'{"model":"m","messages":[{"role":"user"}],"a":' + nested(100) + b"}", "a"),
        (b'{"model":"m","messages":[{"role":"user"}],"a":[' + b" " * 200_000 + nested(99) + b"]}", "a"),
        (b'{"model":"m"}', "messages"),
        (body(messages=[]), "messages"),
        (b'{"model":"m","messages":[ \n]}', "messages"),
        (body(messages=None), "messages"),
        (body(messages={"0": {}}), "messages"),
        (body(messages="hi"), "messages"),
        (b'{"messages":[{"role":"user"}]}', "model"),
        (body(model=""), "model"),
        (body(model=None), "model"),
        (body(model=["m"]), "model"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(raw: bytes, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_call(raw)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [(b"", "is empty"), (b"\xef\xbb\xbf{}", "byte order mark"), (b'{"\xff', "UTF-8"), (b"{x", "not valid JSON")],
)
def test_the_sentence_says_what_is_wrong(raw: bytes, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        parse_call(raw)


def test_a_hundred_levels_pass() -> None:
    raw = b'{"model":"m","messages":[{"role":"user"}],"a":' + nested(99) + b"}"
    assert forward(parse_call(raw)) is raw


def test_numbers_that_nobody_can_hold_pass() -> None:
    raw = (
        b'{"model":"m","messages":[{"role":"user"}],"a":'
        + b"9" * 5000
        + b',"n":1e999,"max_tokens":'
        + b"9" * 5000
        + b"}"
    )
    call = parse_call(raw)
    assert forward(call) is raw
    assert (call.n, call.output_limit) == (1, None)


ODD = [None, True, "5", -1, 0, [], {}, [5], {"a": 5}, "", 0.5]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", [*NAMES, "max_completion_tokens", "functions", "response_format", "safety_identifier"])
def test_fields_of_another_type_are_not_our_business(name: str, odd: Any) -> None:
    raw = body(**{name: odd})
    call = parse_call(raw)
    assert forward(call) is raw
    assert call.n == 1
    assert call.output_limit is None


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9}, 9),
        ({"max_completion_tokens": 9, "max_tokens": 7}, 9),
        ({"max_completion_tokens": None, "max_tokens": 7}, 7),
        ({"max_tokens": 7.0}, 7),
    ],
)
def test_the_output_limit_is_either_name(fields: dict[str, Any], limit: int) -> None:
    assert parse_call(body(**fields)).output_limit == limit


def test_the_usual_fields_are_read() -> None:
    call = parse_call(
        body(stream=True, n=3, tools=[{"type": "function"}], tool_choice="auto", user="u", safety_identifier="s")
    )
    assert (call.model, call.stream, call.n, call.has_tools, call.tool_choice) == ("m", True, 3, True, b'"auto"')
    assert (call.user, call.safety_identifier, call.include_usage) == ("u", "s", False)


@pytest.mark.parametrize("tools", [None, [], {}, "x"])
def test_no_tools_are_no_tools(tools: Any) -> None:
    assert not parse_call(body(tools=tools)).has_tools


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("metadata.session_id", "s1"),
        ("metadata.deep.er", "s2"),
        ("litellm_session_id", "s3"),
        ("metadata.number", None),
        ("metadata.empty", None),
        ("metadata", None),
        ("metadata.none.at.all", None),
        ("litellm_session_id.x", None),
        ("absent", None),
    ],
)
def test_a_text_is_found_by_its_path(path: str, found: str | None) -> None:
    call = parse_call(
        body(
            metadata={"session_id": "s1", "deep": {"er": "s2"}, "number": 5, "empty": ""},
            litellm_session_id="s3",
        )
    )
    assert call.text(path) == found


def test_overhead_is_what_was_sent_besides_messages() -> None:
    call = parse_call(body(tools=[{"a": "é"}], functions=None, response_format={"type": "text"}))
    assert call.overhead == (b'[{"a": "\\u00e9"}]', b'{"type": "text"}')
    assert count_overhead(call, Characters()) == len('[{"a": "\\u00e9"}]') + len('{"type": "text"}')
    assert count_overhead(parse_call(body()), Characters()) == 0


def test_a_thread_that_goes_on_is_split_from_where_it_was() -> None:
    first = parse_call(body())
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    second = parse_call(body(messages=[*messages, {"role": "user"}]))
    assert second.resume(first.slices) == second.slices
    third = parse_call(body(messages=[*messages, {"role": "user"}, {"role": "tool"}]))
    assert [one is other for one, other in zip(third.resume(second.slices), second.slices, strict=False)] == [True] * 3
    assert third.slices[3] == b'{"role": "tool"}'


def test_what_is_split_already_is_not_split_again() -> None:
    call = parse_call(body(messages=[{"role": "user"}, {"role": "assistant"}]))
    slices, known = call.slices, [bytes(bytearray(b'{"role": "user"}'))]
    assert call.resume([b'{"role": "tool"}']) is slices
    assert call.resume(known) is slices
    assert slices[0] is known[0]
    assert slices[1] == b'{"role": "assistant"}'


@pytest.mark.parametrize(("most", "exceeds"), [(1, True), (2, True), (3, False), (100_000, False)])
def test_it_tells_whether_there_are_too_many_messages(most: int, exceeds: bool) -> None:
    assert parse_call(body(messages=[{"role": "u"}] * 3)).exceeds(most) is exceeds


@pytest.mark.parametrize("padding", [0, 2_000_000])
async def test_a_body_of_any_size_is_parsed_alike_off_the_loop(padding: int) -> None:
    raw = body(user="u", padding=" " * padding)
    call = await parse_call_off_loop(raw)
    assert (call.fields, call.slices) == (parse_call(raw).fields, parse_call(raw).slices)
    with pytest.raises(BadRequest):
        await parse_call_off_loop(raw + b"x")


@pytest.mark.parametrize(
    ("body", "missing"), [(b'{"model":"m","message":[]}', "messages"), (b'{"messages":[{"role":"user"}]}', "model")]
)
def test_what_is_missing_is_named(body: bytes, missing: str) -> None:
    with pytest.raises(BadRequest, match=f"has no `{missing}`") as refused:
        parse_call(body)
    assert refused.value.param == missing
