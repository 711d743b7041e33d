"""What a model says comes through as it said it, however its server writes, cuts or packs it; and is stored so."""

import gzip
import json
import zlib
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import (
    DONE,
    STREAM,
    Answer,
    FakeUpstream,
    Gate,
    completion,
    event,
    spoken,
    stream,
)
from tests.proxy.e2e.served import Got, Json, Proxy, user

HELLO = {"model": "plain", "messages": [user("Hello.")]}
STREAMED = HELLO | {"stream": True}
JSON = {"content-type": "application/json"}


def relayed(proxy: Proxy, upstream: FakeUpstream, parts: list[bytes], session: str = "", **more: Any) -> Got:
    """Return what a client gets of a stream; all of it must be what the upstream sent."""
    upstream.on("plain", stream(parts))
    got = proxy.post(STREAMED | more, **({"x_session_id": session} if session else {}))
    assert (got.status, got.body) == (200, b"".join(parts))
    return got


def stored(proxy: Proxy, session: str) -> list[Json]:
    """Return the assistant's messages of a session."""
    rows = proxy.rows(session).messages
    return [json.loads(row["payload"]) for row in rows if row["role"] == "assistant"]


def choice(index: int, delta: Json, finish: str | None = None, **more: Any) -> bytes:
    """Return one event of one of several choices."""
    return event(None, choices=[{"index": index, "delta": delta, "finish_reason": finish} | more])


# ---------------------------------------------------------------------- what is said
def test_several_choices_in_turn(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [
        choice(0, {"role": "assistant", "content": ""}) + choice(1, {"role": "assistant", "content": ""}),
        choice(1, {"content": "One, "}),
        choice(0, {"content": "Zero."}, "stop"),
        choice(1, {"content": "at length."}),
        choice(1, {}, "length"),
        DONE,
    ]
    relayed(proxy, upstream, parts, "choices", n=2)
    assert [m["content"] for m in stored(proxy, "choices")] == ["Zero.", "One, at length."]
    assert [row["complete"] for row in proxy.rows("choices").requests] == [1]


def test_several_choices_whose_server_forgets_to_end(serve: Serve, upstream: FakeUpstream) -> None:
    proxy, never = serve(limits={"idle_stream_s": 20}), Gate()  # shorter than the gate is closed
    parts = [choice(1, {"content": "One."}, "stop"), choice(0, {"content": "Zero."}, "stop")]
    upstream.on("plain", stream([*parts, never]))
    with patch("transom.proxy.stream_relay.LINGER_S", 0.2):
        got = proxy.post(STREAMED | {"n": 2})
    never.open()
    assert got.body == b"".join(parts) + DONE


def test_fewer_choices_than_asked_for(proxy: Proxy, upstream: FakeUpstream) -> None:
    relayed(proxy, upstream, [*spoken("Only one."), DONE], n=3)


LOGPROBS = {"content": [{"token": "Hi", "logprob": -0.31725305, "bytes": [72, 105], "top_logprobs": []}]}


def test_logprobs(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [choice(0, {"content": "Hi"}, logprobs=LOGPROBS), choice(0, {}, "stop", logprobs=None), DONE]
    relayed(proxy, upstream, parts, logprobs=True, top_logprobs=2)
    body = completion(
        choices=[{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"} | {"logprobs": LOGPROBS}]
    )
    upstream.on("plain", Answer([body]))
    assert proxy.post(HELLO | {"logprobs": True}).body == body


def test_audio(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [
        event({"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hel"}}),
        event({"audio": {"data": "UklG"}}),
        event({"audio": {"transcript": "lo.", "data": "Rg=="}}),
        event({"audio": {"expires_at": 1}}),
        event({}, "stop"),
        DONE,
    ]
    audio = {"id": "audio_1", "transcript": "Hello.", "data": "UklGRg==", "expires_at": 1}
    asked = {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    relayed(proxy, upstream, parts, "audio-stream", **asked)
    body = completion(
        None, choices=[{"index": 0, "message": {"content": None, "audio": audio}, "finish_reason": "stop"}]
    )
    upstream.on("plain", Answer([body]))
    assert proxy.post(HELLO | asked, x_session_id="audio-whole").body == body
    for session in ("audio-stream", "audio-whole"):
        assert [m["audio"] for m in stored(proxy, session)] == [audio]


def test_refusals(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [event({"role": "assistant", "content": None, "refusal": ""}), event({"refusal": "No, "})]
    parts += [event({"refusal": "thanks."}), event({}, "stop"), DONE]
    relayed(proxy, upstream, parts, "refusal-stream")
    message = {"role": "assistant", "content": None, "refusal": "No, thanks."}
    body = completion(None, choices=[{"index": 0, "message": message, "finish_reason": "stop"}])
    upstream.on("plain", Answer([body]))
    assert proxy.post(HELLO, x_session_id="refusal-whole").body == body
    for session in ("refusal-stream", "refusal-whole"):
        assert stored(proxy, session) == [message]


def test_calls_in_pieces(proxy: Proxy, upstream: FakeUpstream) -> None:
    first: Json = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
    second = first | {"index": 1, "id": "b"}
    parts = [event({"role": "assistant", "content": None, "tool_calls": [first]}), event({"tool_calls": [second]})]
    for index, piece in [(0, '{"at":'), (1, "{"), (0, '"h\\u00e9"}'), (1, "}")]:
        parts.append(event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    relayed(proxy, upstream, [*parts, event({}, "tool_calls"), DONE], "pieces")
    (message,) = stored(proxy, "pieces")
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]
    assert calls == [("a", "look", '{"at":"h\\u00e9"}'), ("b", "look", "{}")]


USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "total_tokens": 11,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "unknown_tokens": 1,
}


def test_null_takes_nothing_away(proxy: Proxy, upstream: FakeUpstream) -> None:
    def piece(**function: Any) -> bytes:
        named = {"id": "c" if function.get("name") else None, "type": "function"}
        return choice(0, {"role": None, "content": None, "tool_calls": [{"index": 0, **named, "function": function}]})

    first, rest = piece(name="look", arguments=""), [piece(name=None, arguments=part) for part in ('{"x"', ":1}", None)]
    relayed(proxy, upstream, [first, *rest, choice(0, {}, "tool_calls"), DONE], "null-pieces")
    (call,) = stored(proxy, "null-pieces")[0]["tool_calls"]
    assert call == {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}


@pytest.mark.parametrize("going_on", ["", "null"])
def test_a_choice_that_goes_on_is_not_held_back(proxy: Proxy, upstream: FakeUpstream, going_on: str) -> None:
    gate = Gate()
    begun, ended = (
        choice(0, {"content": "Yes"}, going_on),
        [choice(0, {"content": "."}, going_on), choice(0, {}, "stop")],
    )
    upstream.on("plain", stream([begun, gate, *ended, DONE]))
    with proxy.asking(STREAMED) as response:
        assert response.read(len(begun)) == begun  # while the model still speaks
        gate.open()
        assert response.read() == b"".join([*ended, DONE])
    upstream.on("plain", stream([begun]))
    assert DONE not in proxy.post(STREAMED).body


def test_usage_where_it_is_asked_for(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [event({"content": "Hi."}, usage=None), event({}, "stop", usage=None), event(None, usage=USAGE), DONE]
    relayed(proxy, upstream, parts, stream_options={"include_usage": True, "include_obfuscation": False})
    options = upstream.received[0].fields["stream_options"]
    assert options == {"include_usage": True, "include_obfuscation": False}


def test_usage_beside_the_text_passes_unasked(proxy: Proxy, upstream: FakeUpstream) -> None:
    relayed(proxy, upstream, [event({"content": "Hi."}, usage=USAGE), event({}, "stop", usage=USAGE), DONE])


@pytest.mark.parametrize("packed", [False, True])
def test_of_the_usage_nobody_asked_for_only_its_event_is_dropped(
    proxy: Proxy, upstream: FakeUpstream, packed: bool
) -> None:
    before, after = [event({"content": "Hi."}), event({}, "stop")], [b": late\n\n", event(None, x=1)]
    parts = [*before, event(None, usage=USAGE), *after, DONE]
    upstream.on("plain", stream([b"".join(parts)] if packed else parts))
    assert proxy.post(STREAMED).body == b"".join([*before, *after, DONE])


def test_what_is_unknown_passes(proxy: Proxy, upstream: FakeUpstream) -> None:
    parts = [
        b"retry: 1000\n\n",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b'id: 7\nevent: chunk\ndata: {"choices":[{"index":0,"delta":{"content":"Hi.","new":[1.50]}}],"x":{}}\n\n',
        b'data:{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"new","data":"=="}]}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{},\ndata: "finish_reason":"stop"}]}\n\n',
        DONE,
    ]
    relayed(proxy, upstream, parts, "unknown")
    (message,) = stored(proxy, "unknown")
    assert (message["content"], message["new"]) == ("Hi.", [1.5])
    assert message["reasoning_details"] == [{"type": "new", "data": "=="}]


@pytest.mark.parametrize("escaped", [r"a\u0000b\u0001", r"\ud83d\ude00\u2028", r"\ud83d alone", "\\n\\n" * 50])
def test_characters_that_are_seldom_seen(proxy: Proxy, upstream: FakeUpstream, escaped: str) -> None:
    text = json.loads(f'"{escaped}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    line = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % escaped.encode()
    session = f"seldom-{hash(escaped)}"
    relayed(proxy, upstream, [line, event({}, "stop"), DONE], session)
    body = b'{"choices":[{"index":0,"message":{"content":"%b"},"finish_reason":"stop"}]}' % escaped.encode()
    upstream.on("plain", Answer([body]))
    assert proxy.post(HELLO, x_session_id=f"{session}-whole").body == body
    for name in (session, f"{session}-whole"):
        assert [m["content"] for m in stored(proxy, name)] == [text]


# ---------------------------------------------------------------------- how it is written
def test_a_line_of_several_megabytes(proxy: Proxy, upstream: FakeUpstream) -> None:
    text = "water and stone, " * 400_000
    parts = [event({"content": text}), event({"content": "."}), event({}, "stop"), DONE]
    relayed(proxy, upstream, parts, "long-line")
    (message,) = stored(proxy, "long-line")
    assert message["content"] == text + "."


def test_an_answer_of_several_megabytes(proxy: Proxy, upstream: FakeUpstream) -> None:
    body = completion("water and stone, " * 400_000)
    upstream.on("plain", Answer([body[i : i + 65_536] for i in range(0, len(body), 65_536)]))
    assert proxy.post(HELLO).body == body


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stream_that_never_ends(proxy: Proxy, upstream: FakeUpstream, streamed: bool) -> None:
    upstream.on("plain", stream([event({"content": "water"})] * 3000))
    most = 200_000
    with patch("transom.proxy.relay.MOST_BYTES", most), patch("transom.proxy.stream_relay.MOST_BYTES", most):
        got = proxy.post(STREAMED if streamed else HELLO)
    last = got.events[-1].removeprefix(b"data: ")
    assert json.loads(last)["error"]["message"] == "The model's server gave an answer that is too large."
    assert len(got.body) < 250_000


def test_a_line_that_never_ends(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([b"data: {", *[b"x" * 1_000_000] * 40]))
    assert proxy.post(STREAMED).error == (502, "upstream_bad_response", None)


ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("packed", [False, True])
def test_line_ends(proxy: Proxy, upstream: FakeUpstream, end: bytes, packed: bool) -> None:
    parts = [part.replace(b"\n", end) for part in (b": hi\n\n", *spoken("Hel", "lo."), b":\n\n")]
    upstream.on("plain", stream([b"".join(parts)] if packed else parts))
    assert proxy.post(STREAMED).body == b"".join(parts) + DONE


SCREEN = [
    b"\xef\xbb\xbf: opening\n\n",
    *spoken("Grüße ", "\U0001f680 ", "aus\r\nUlm"),
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ends=st.lists(st.sampled_from(sorted(ENDS.values())), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
    done=st.booleans(),
)
def test_wherever_it_is_cut(
    proxy: Proxy, upstream: FakeUpstream, ends: list[bytes], cuts: list[int], done: bool
) -> None:
    whole = b"".join(one.replace(b"\n", ends[at % len(ends)]) for at, one in enumerate(SCREEN))
    places = sorted({min(cut, len(whole)) for cut in cuts})
    pieces = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True) if a < b]
    upstream.on("plain", stream([*pieces, *([DONE] if done else [])]))
    assert proxy.post(STREAMED).body == whole + DONE


TAILS = [b"data: [DONE]", b"data:[DONE]\r\n", b"data: [DONE]\r", b"event: done\ndata: [DONE]\n", b"data: [DONE] \n\n"]


@pytest.mark.parametrize("tail", TAILS)
def test_the_end_in_other_words(proxy: Proxy, upstream: FakeUpstream, tail: bytes) -> None:
    upstream.on("plain", stream([*spoken("Hi."), tail]))
    assert proxy.post(STREAMED).body == b"".join(spoken("Hi.")) + DONE


def test_everything_in_one_piece(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([b"".join([*spoken("Hi."), DONE])]))
    assert proxy.post(STREAMED).body == b"".join(spoken("Hi.")) + DONE


# ---------------------------------------------------------------------- how it is packed
PACKED = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", PACKED)
def test_an_encoded_answer_is_opened(proxy: Proxy, upstream: FakeUpstream, encoding: str) -> None:
    body = completion("Packed.")
    upstream.on("plain", Answer([PACKED[encoding](body)], headers=JSON | {"content-encoding": encoding}))
    got = proxy.post(HELLO)
    assert (got.status, got.body, "content-encoding" in got.headers) == (200, body, False)
    events = [*spoken("Packed."), DONE]
    packed = PACKED[encoding](b"".join(events))
    pieces = [packed[i : i + 7] for i in range(0, len(packed), 7)]
    upstream.on("plain", Answer(pieces, headers=STREAM | {"content-encoding": encoding}))
    got = proxy.post(STREAMED)
    assert (got.status, got.body, "content-encoding" in got.headers) == (200, b"".join(events), False)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
@pytest.mark.parametrize("streamed", [False, True])
def test_what_cannot_be_opened_is_no_answer(
    proxy: Proxy, upstream: FakeUpstream, encoding: str, streamed: bool
) -> None:
    kind = STREAM if streamed else JSON
    upstream.on("plain", Answer([b"\x00not packed at all"], headers=kind | {"content-encoding": encoding}))
    assert proxy.post(STREAMED if streamed else HELLO).error[:2] == (502, "upstream_bad_response")


def test_a_refusal_that_is_packed(proxy: Proxy, upstream: FakeUpstream) -> None:
    body = b'{"error": {"message": "Too fast."}}'
    upstream.on("plain", Answer([gzip.compress(body)], 429, JSON | {"content-encoding": "gzip"}))
    got = proxy.post(HELLO)
    assert (got.status, got.body) == (429, body)


def test_blanks_before_an_answer(proxy: Proxy, upstream: FakeUpstream) -> None:
    """Some servers send blanks while the model thinks, so that nobody hangs up."""
    upstream.on("plain", Answer([b"\n", b"   ", b"\r\n", completion("Hi."), b"\n"]))
    assert proxy.post(HELLO).message["content"] == "Hi."


# ---------------------------------------------------------------------- what was asked for otherwise
FULL = {
    "id": "chatcmpl-9",
    "object": "chat.completion",
    "created": 7,
    "model": "m-2",
    "system_fingerprint": "fp",
    "service_tier": "default",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": LOGPROBS,
            "finish_reason": "stop",
            "content_filter_results": {"hate": {"filtered": False}},
        }
    ],
    "usage": USAGE,
}


def test_json_that_becomes_a_stream_loses_nothing(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", Answer([json.dumps(FULL).encode()]))
    got = proxy.post(STREAMED | {"stream_options": {"include_usage": True}})
    chunks = [json.loads(e.removeprefix(b"data: ")) for e in got.events if e != DONE]
    choices = [c for chunk in chunks for c in chunk["choices"]]
    assert {(c["id"], c["created"], c["system_fingerprint"], c["service_tier"]) for c in chunks} == {
        ("chatcmpl-9", 7, "fp", "default")
    }
    assert [c["logprobs"] for c in choices if c.get("logprobs")] == [LOGPROBS]
    assert [c["content_filter_results"] for c in choices if "content_filter_results" in c]
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["stop"]
    assert chunks[-1]["usage"] == USAGE


def test_a_stream_that_becomes_json_loses_nothing(proxy: Proxy, upstream: FakeUpstream) -> None:
    head = {k: v for k, v in FULL.items() if k not in ("choices", "usage", "object")}
    more = {"content": [{"token": ".", "logprob": -1.5, "bytes": None, "top_logprobs": []}]}
    parts = [
        event({"role": "assistant", "content": ""}, **head),
        event(None, **head, choices=[{"index": 0, "delta": {"content": "Hi"}, "logprobs": LOGPROBS}]),
        event(None, **head, choices=[{"index": 0, "delta": {"content": "."}, "logprobs": more, "x": 1}]),
        event({}, "stop", **head),
        event(None, **head, usage=USAGE),
        DONE,
    ]
    upstream.on("plain", stream(parts))
    answer = proxy.post(HELLO).json
    (only,) = answer.pop("choices")
    assert answer == head | {"object": "chat.completion", "usage": USAGE}
    assert only["message"]["content"] == "Hi."
    assert only["logprobs"] == {"content": LOGPROBS["content"] + more["content"]}
    assert (only["x"], only["finish_reason"]) == (1, "stop")


def test_the_official_client_reads_it(proxy: Proxy, upstream: FakeUpstream) -> None:
    with OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="key-of-acme", max_retries=0) as client:
        parts = [choice(1, {"content": "B"}, logprobs=LOGPROBS), choice(0, {"content": "A"}, "stop")]
        upstream.on("plain", stream([*parts, choice(1, {}, "stop"), event(None, usage=USAGE), DONE]))
        chunks = list(
            client.chat.completions.create(
                model="plain",
                messages=[{"role": "user", "content": "Hi"}],
                n=2,
                logprobs=True,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    assert [c.index for chunk in chunks for c in chunk.choices] == [1, 0, 1]
    assert chunks[0].choices[0].logprobs is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 9
