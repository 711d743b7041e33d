"""Answers come back as the model gave them, bytes and all; what is no answer becomes an error of OpenAI's shape."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from openai import OpenAI

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import (
    DONE,
    Abort,
    Answer,
    FakeUpstream,
    Gate,
    OpensLater,
    call,
    completion,
    event,
    say,
    spoken,
    stream,
)
from tests.proxy.e2e.served import SECRET, Got, Proxy, user
from tests.proxy.e2e.test_compress import until

HELLO = {"model": "plain", "messages": [user("Hello.")]}
STREAMED = HELLO | {"stream": True}
USAGE = event(None, usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})


def ask(proxy: Proxy, *, streamed: bool, **more: Any) -> Got:
    return proxy.post((STREAMED if streamed else HELLO) | more)


# ---------------------------------------------------------------------- what passes
def test_json_answers_pass_byte_for_byte(proxy: Proxy, upstream: FakeUpstream) -> None:
    message = b'{"content":"h\\u00e9","role":"assistant"}'
    body = b'{ "choices" : [ {"message":%b , "finish_reason":"stop","index":0}],"x":1.50}\n' % message
    upstream.on("plain", Answer([body]))
    got = ask(proxy, streamed=False)
    assert (got.status, got.body) == (200, body)


def test_streams_pass_byte_for_byte(proxy: Proxy, upstream: FakeUpstream) -> None:
    events = [*spoken("Hel", "lo, wörld"), DONE]
    upstream.on("plain", stream(events))
    got = ask(proxy, streamed=True)
    assert (got.status, got.body) == (200, b"".join(events))
    assert got.headers["content-type"].startswith("text/event-stream")


def test_requests_pass_byte_for_byte(proxy: Proxy, upstream: FakeUpstream) -> None:
    body = b'{"zz":null, "messages" : [ {"role":"user","content":"h\\u00e9","x":[1.0]} ],"model":"plain","seed":1.50}'
    assert proxy.post(body).status == 200
    assert upstream.received[0].body == body


def test_a_stream_cut_anywhere_is_the_same_stream(proxy: Proxy, upstream: FakeUpstream) -> None:
    whole = b"".join([b": hello\r\n\r\n", *(e.replace(b"\n", b"\r\n") for e in spoken("Höl", "la"))])
    upstream.on("plain", stream([whole[i : i + 1] for i in range(len(whole))] + [DONE]))
    got = ask(proxy, streamed=True)
    assert got.body == whole + DONE


@pytest.mark.parametrize("wanted", [False, True])
def test_the_usage_event_comes_only_if_asked_for(proxy: Proxy, upstream: FakeUpstream, wanted: bool) -> None:
    upstream.on("plain", stream([*spoken("Hello."), USAGE, DONE]))
    more = {"stream_options": {"include_usage": True}} if wanted else {}
    got = ask(proxy, streamed=True, **more)
    assert (USAGE in got.events) is wanted
    assert got.body.endswith(DONE)
    assert upstream.received[0].fields["stream_options"] == {"include_usage": True}


def test_events_without_choices_that_are_no_usage_pass(proxy: Proxy, upstream: FakeUpstream) -> None:
    filtered = event(None, prompt_filter_results=[])
    upstream.on("plain", stream([filtered, *spoken("Hi."), DONE]))
    assert ask(proxy, streamed=True).body.startswith(filtered)


@pytest.mark.parametrize("end", [[], [DONE]], ids=["no done", "done"])
def test_a_finished_stream_ends_with_done(proxy: Proxy, upstream: FakeUpstream, end: list[bytes]) -> None:
    upstream.on("plain", stream([*spoken("Hi."), *end]))
    got = ask(proxy, streamed=True)
    assert got.body.endswith(DONE)
    assert got.body.count(DONE) == 1


def test_done_without_a_finish_reason_is_complete(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([event({"content": "Hi."}), DONE]))
    assert ask(proxy, streamed=True).body.endswith(DONE)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [call("a", arguments="{not json"), call("a")]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm."},
        {"role": "assistant", "content": [{"type": "text", "text": "parts"}]},
        {"role": "assistant", "content": "é" * 3, "annotations": [], "refusal": None, "audio": None},
        {"role": "assistant", "content": "\ud83d alone"},
        pytest.param({"content": "no role"}),
        pytest.param({"role": None, "content": "null role"}),
    ],
    ids=["bad arguments", "reasoning", "parts", "fields", "half an emoji", "no role", "null role"],
)
def test_strange_messages_pass(proxy: Proxy, upstream: FakeUpstream, message: dict[str, Any]) -> None:
    choice = {"index": 0, "message": message, "finish_reason": "something_new"}
    body = completion(choices=[choice])
    upstream.on("plain", Answer([body]))
    got = ask(proxy, streamed=False)
    assert (got.status, got.body) == (200, body)


def test_a_hundred_equal_chunks_pass(proxy: Proxy, upstream: FakeUpstream) -> None:
    events = [*spoken(*["ab"] * 100), DONE]
    upstream.on("plain", stream(events))
    assert ask(proxy, streamed=True).body == b"".join(events)


def test_json_where_a_stream_was_due_becomes_one(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", say("Hello."))
    got = ask(proxy, streamed=True)
    assert got.events[-1] == DONE
    assert json.loads(got.events[0][6:])["choices"][0]["delta"]["content"] == "Hello."


def test_a_stream_where_json_was_due_is_put_together(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([*spoken("Hel", "lo."), DONE]))
    assert ask(proxy, streamed=False).message["content"] == "Hello."


def test_several_choices(proxy: Proxy, upstream: FakeUpstream) -> None:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": f"Choice {i}."}, "finish_reason": "stop"}
        for i in range(3)
    ]
    upstream.on("plain", Answer([completion(choices=choices)]))
    got = proxy.post(HELLO | {"n": 3}, x_session_id="several-choices")
    assert len(got.json["choices"]) == 3
    rows = proxy.rows("several-choices").messages
    assert [row["role"] for row in rows] == ["user", "assistant", "assistant", "assistant"]
    assert {row["parent"] for row in rows[1:]} == {rows[0]["id"]}


def test_the_official_client(proxy: Proxy, upstream: FakeUpstream) -> None:
    with OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="key-of-acme", max_retries=0) as client:
        upstream.on("plain", say(None, calls=[call("c1", "weather", '{"city":"Ulm"}')]))
        answer = client.chat.completions.create(model="plain", messages=[{"role": "user", "content": "Weather?"}])
        calls = answer.choices[0].message.tool_calls
        assert calls is not None
        assert calls[0].id == "c1"
        upstream.on("plain", stream([*spoken("It ", "rains."), DONE]))
        chunks = list(
            client.chat.completions.create(
                model="plain", messages=[{"role": "user", "content": "Weather?"}], stream=True
            )
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == "It rains."


def test_only_allowed_headers_go_up(proxy: Proxy, upstream: FakeUpstream) -> None:
    sent = {
        "user_agent": "me/1",
        "x_stainless_lang": "python",
        "idempotency_key": "i1",
        "openai_beta": "b",
        "cookie": "secret=1",
        "x_forwarded_for": "10.0.0.1",
        "x_session_id": "headers",
        "openai_organization": "org",
        "x_custom": "1",
    }
    assert proxy.post(HELLO, **sent).status == 200
    up = upstream.received[0].headers
    assert up["authorization"] == f"Bearer {SECRET}"
    assert {n for n in ("user-agent", "x-stainless-lang", "idempotency-key", "openai-beta") if n in up} == {
        "user-agent",
        "x-stainless-lang",
        "idempotency-key",
        "openai-beta",
    }
    assert not {"cookie", "x-forwarded-for", "x-session-id", "openai-organization", "x-custom"} & up.keys()
    assert up["accept-encoding"] == "identity"


def test_the_answers_headers_come_back(proxy: Proxy, upstream: FakeUpstream) -> None:
    headers = {
        "content-type": "application/json",
        "x-ratelimit-limit-requests": "7",
        "openai-version": "1",
        "server": "x",
    }
    upstream.on("plain", Answer([completion()], headers=headers))
    got = proxy.post(HELLO, x_request_id="my-own-id")
    assert got.headers["x-ratelimit-limit-requests"] == "7"
    assert got.headers["openai-version"] == "1"
    assert got.headers["x-request-id"] == "my-own-id"
    assert "server" not in got.headers
    assert got.headers["x-transom-policy"] == "plain"
    assert got.window == ["fits"]


def test_connections_to_the_model_are_used_again_after_a_stream(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"plain": {"preset": "chat"}})  # of its own: another's pool may hold several to choose from
    upstream.on("plain", lambda _: stream([*spoken("Hi."), DONE, OpensLater(0.02)]))
    assert proxy.transom is not None
    direct = proxy.transom._direct
    with patch("transom.proxy.stream_relay.SETTLE_S", 60):
        for _ in range(5):
            assert ask(proxy, streamed=True).status == 200
            until(lambda: any(direct._pool._idle.values()))  # the end of the transfer comes behind the client's back
    assert len({r.port for r in upstream.received}) == 1


# ---------------------------------------------------------------------- what does not
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [400, 403, 404, 422, 429, 500, 503])
def test_errors_pass_without_our_key(proxy: Proxy, upstream: FakeUpstream, status: int, streamed: bool) -> None:
    headers = {"content-type": "application/json", "retry-after": "7"}
    upstream.on("plain", Answer([b'{"error": {"message": "Not with key %b"}}' % SECRET.encode()], status, headers))
    got = ask(proxy, streamed=streamed)
    assert got.status == status
    assert got.headers["retry-after"] == "7"
    assert got.json["error"]["message"].startswith("Not with key ")
    assert SECRET.encode() not in got.body


def test_errors_without_our_key_pass_byte_for_byte(proxy: Proxy, upstream: FakeUpstream) -> None:
    body = b'{ "error": {"message":"Too  fast" } }'
    upstream.on("plain", Answer([body], 429))
    assert ask(proxy, streamed=False).body == body


@pytest.mark.parametrize("streamed", [False, True])
def test_a_refused_key_of_ours_is_the_operators_matter(proxy: Proxy, upstream: FakeUpstream, streamed: bool) -> None:
    upstream.on("plain", Answer([b'{"error": {"message": "Incorrect API key: %b"}}' % SECRET.encode()], 401))
    got = ask(proxy, streamed=streamed)
    assert got.error == (502, "upstream_auth", None)
    assert got.headers["x-should-retry"] == "false"
    assert b"sk-" not in got.body


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        Answer([b"<html>Welcome</html>"], headers={"content-type": "text/html"}),
        Answer([]),
        Answer([b'{"choices": []}']),
        Answer([b'{"choices": [{"message"']),
        Answer([completion(text=None, finish=None)]),
        Answer([b""], 302, {"location": "http://127.0.0.1:1/"}),
        Answer([b'{"error": {"message": "odd"}}']),
    ],
    ids=["html", "empty", "no choices", "torn", "says nothing", "redirect", "error with 200"],
)
def test_what_is_no_answer_is_an_error(proxy: Proxy, upstream: FakeUpstream, answer: Answer, streamed: bool) -> None:
    upstream.on("plain", answer)
    got = ask(proxy, streamed=streamed)
    assert got.error == (502, "upstream_bad_response", None)
    assert got.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "parts",
    [
        [event({"content": "Hal"})],
        [event({"content": "Hal"}), Abort()],
        [event({"content": "Hal"}), b"data: {torn\n\n", DONE],
    ],
    ids=["ends", "reset", "malformed"],
)
def test_a_stream_that_dies_ends_in_an_error_event(proxy: Proxy, upstream: FakeUpstream, parts: list[Any]) -> None:
    upstream.on("plain", stream(parts))
    got = ask(proxy, streamed=True)
    assert DONE not in got.body
    last = json.loads(got.events[-1].removeprefix(b"data: "))  # of a stream, or alone where nothing had gone out yet
    assert last["error"]["code"] == "upstream_bad_response"


@pytest.mark.parametrize("parts", [[], [b": hi\n\n"], [DONE]], ids=["empty", "comment", "done"])
def test_a_stream_that_says_nothing_is_an_error(proxy: Proxy, upstream: FakeUpstream, parts: list[Any]) -> None:
    upstream.on("plain", stream(parts))
    got = ask(proxy, streamed=True)
    assert DONE not in got.body
    assert b"upstream_bad_response" in got.body


def test_an_error_event_passes_and_ends_the_stream(proxy: Proxy, upstream: FakeUpstream) -> None:
    broken = b'data: {"error": {"message": "The engine is on fire", "code": "x"}}\n\n'
    upstream.on("plain", stream([event({"content": "Hal"}), broken]))
    got = ask(proxy, streamed=True)
    assert got.events == [event({"content": "Hal"}), broken]


def test_an_error_event_does_not_show_our_key(proxy: Proxy, upstream: FakeUpstream) -> None:
    broken = b'data: {"error": {"message": "Bad key %b", "code": "x"}}\n\n' % SECRET.encode()
    upstream.on("plain", stream([event({"content": "Hal"}), broken]))
    assert SECRET.encode() not in ask(proxy, streamed=True).body


def test_a_broken_answer_is_stored_as_incomplete(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([event({"content": "Hal"}), Abort()]))
    proxy.post(STREAMED, x_session_id="broken-answer")
    rows = proxy.rows("broken-answer")
    assert [row["complete"] for row in rows.requests] == [0]
    assert [row["role"] for row in rows.messages] == ["user", "assistant"]


def test_a_model_that_cannot_be_reached(serve: Serve) -> None:
    proxy = serve()
    entry = {"model_name": "plain", "litellm_params": {"model": "openai/x", "api_base": "http://127.0.0.1:1/v1"}}
    lost = {"model_name": "lost", "litellm_params": {"model": "openai/x", "api_base": "http://lost.invalid/v1"}}
    tenants = {"default": {"policy": "plain"}}
    proxy.reconfigure(model_list=[entry, lost], tenants=tenants)
    for model in ("plain", "lost"):
        got = proxy.post(HELLO | {"model": model}, tenant=None)
        assert got.error == (502, "upstream_unreachable", None)
        assert b"invalid" not in got.body


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_hangs(serve: Serve, upstream: FakeUpstream, streamed: bool) -> None:
    proxy = serve(limits={"first_byte_s": 0.4, "idle_stream_s": 0.4})
    never = Gate()
    upstream.on("plain", stream([], before=never))
    got = ask(proxy, streamed=streamed)
    assert got.error == (504, "upstream_timeout", None)
    upstream.on("plain", stream([event({"content": "Hal"}), never]))
    got = ask(proxy, streamed=streamed)
    assert b'"upstream_timeout"' in got.body
    assert DONE not in got.body
    never.open()
