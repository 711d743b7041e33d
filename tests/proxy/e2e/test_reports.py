"""A server that says within an answer of status 200 that it has failed: it is believed, in whatever shape it says so.

So is one whose answer is not of the type that it names.
"""

import json
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import (
    DONE,
    STREAM,
    Answer,
    FakeUpstream,
    OpensLater,
    Part,
    Received,
    completion,
    event,
    ordinary,
    spoken,
    stream,
)
from tests.proxy.e2e.served import SECRET, Got, Proxy, Talk, key, request, user
from tests.proxy.e2e.test_compress import over
from tests.proxy.e2e.test_overflow import SMALL
from tests.proxy.e2e.test_tool_limit import CAP, body, turn

HELLO = {"model": "plain", "messages": [user("Hello.")]}
JSON = {"content-type": "application/json"}
PLAIN = {"content-type": "text/plain"}
TOO_LONG = "This model's maximum context length is 1500 tokens. However, your messages resulted in 2600 tokens."

# What servers say in place of an answer; the message is always the same, and the status 429 if there is one.
NAMED = [
    b'{"error": {"message": "Too hot.", "code": 429}}',
    b'{"error": {"message": "Too hot.", "code": "429", "type": "x"}}',
    b'{"object": "error", "message": "Too hot.", "type": "TooHot", "code": 429}',
    b'[{"error": {"message": "Too hot.", "code": 429, "status": "RESOURCE_EXHAUSTED"}}]',
]
UNNAMED = [
    b'{"error": {"message": "Too hot.", "type": "server_error", "code": null}}',
    b'{"error": "Too hot."}',
    b'{"type": "error", "error": {"type": "overloaded_error", "message": "Too hot."}}',
    b'{"error": {"message": "Too hot."}, "choices": []}',
]


def as_event(said: bytes) -> bytes:
    return b"data: " + said + b"\n\n"


def begun(*parts: Part) -> Answer:
    """Answer with a stream that begins well."""
    return stream([event({"role": "assistant", "content": "Hal"}), *parts])


def last_error(got: Got) -> dict[str, Any]:
    """Return the error a stream ends in."""
    assert got.status == 200
    assert b"[DONE]" not in got.body
    return dict(json.loads(got.events[-1].removeprefix(b": transom\n").removeprefix(b"data: "))["error"])


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "as events"])
@pytest.mark.parametrize("said", NAMED + UNNAMED)
def test_an_error_in_place_of_an_answer(
    proxy: Proxy, upstream: FakeUpstream, said: bytes, packed: bool, streamed: bool
) -> None:
    upstream.on("plain", stream([as_event(said), DONE]) if packed else Answer([said]))
    got = proxy.post(HELLO | {"stream": streamed})
    assert got.json["error"]["message"] == "Too hot."
    if said in NAMED:
        assert got.status == 429
    else:
        assert got.error == (502, "upstream_bad_response", None)


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "as events"])
def test_such_an_error_does_not_show_our_key(proxy: Proxy, upstream: FakeUpstream, packed: bool) -> None:
    for code in ("", ', "code": 403'):
        said = b'{"error": {"message": "Not with %b"%b}}' % (SECRET.encode(), code.encode())
        upstream.on("plain", stream([as_event(said)]) if packed else Answer([said]))
        got = proxy.post(HELLO | {"stream": True})
        assert got.status == (403 if code else 502)
        assert SECRET.encode() not in got.body
    said = b'{"error": {"message": "Wrong key.", "code": 401}}'
    upstream.on("plain", stream([as_event(said)]) if packed else Answer([said]))
    assert proxy.post(HELLO).error == (502, "upstream_auth", None)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "as events"])
@pytest.mark.parametrize("code", [None, 400, "context_length_exceeded"])
def test_a_request_that_was_too_long_is_made_smaller(
    serve: Serve, upstream: FakeUpstream, code: object, packed: bool, streamed: bool
) -> None:
    said = json.dumps({"error": {"message": TOO_LONG, "code": code}}).encode()

    def narrow(received: Received) -> Answer:
        if len(received.body) <= 7000:
            return ordinary(received)
        return stream([as_event(said), DONE]) if packed else Answer([said])

    upstream.on("small", narrow)
    talk = Talk(serve({"small": SMALL}), "small", "too-long")
    talk.messages, talk.more = over(14), {"stream": streamed}
    got = talk.send()
    assert (got.status, got.window) == (200, ["cut"])
    assert len(upstream.to("small")) == 2


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        *(as_event(said) for said in NAMED + UNNAMED),
        b'event: error\ndata: {"message": "Too hot."}\n\n',
        b"event: error\ndata: Too hot.\n\n",
        b'id: 7\r\nevent:error\r\ndata: {"error": {"message": "Too hot."}}\r\n\r\n',
        b'data: {"error":\ndata: {"message": "Too hot."}}\n\n',
    ],
)
def test_an_error_on_the_way_ends_the_stream(proxy: Proxy, upstream: FakeUpstream, said: bytes, together: bool) -> None:
    end = [event({}, "stop"), DONE]
    upstream.on("plain", begun(said + b"".join(end)) if together else begun(said, *end))
    session = f"{said.hex()[:200]}-{together}"
    got = proxy.post(HELLO | {"stream": True}, x_session_id=session)
    assert got.events[0] == event({"role": "assistant", "content": "Hal"})
    assert last_error(got)["message"] == "Too hot."
    assert [row["complete"] for row in proxy.rows(session).requests] == [0]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("delta", [{"role": "assistant", "content": ""}, {"reasoning_content": "Hm."}])
def test_a_stream_that_has_said_nothing_yet_has_begun(
    proxy: Proxy, upstream: FakeUpstream, delta: dict[str, Any], together: bool
) -> None:
    parts = [event(delta), as_event(NAMED[0]), DONE]
    upstream.on("plain", stream([b"".join(parts)] if together else parts))
    got = proxy.post(HELLO | {"stream": True})
    assert got.events[0] == event(delta)
    assert last_error(got)["message"] == "Too hot."


@pytest.mark.parametrize("streamed", [False, True])
def test_at_the_cap_an_error_is_no_empty_answer(serve: Serve, upstream: FakeUpstream, streamed: bool) -> None:
    capped = serve({"cap": CAP})
    for said, status in ((NAMED[0], 429), (UNNAMED[0], 502)):
        upstream.on("cap", stream([event({"role": "assistant", "content": ""}), as_event(said)]))
        got = capped.post(body("cap", turn(3), stream=streamed))
        assert (got.status, got.json["error"]["message"]) == (status, "Too hot.")
    upstream.on("cap", stream([event({"content": "Hal"}), as_event(NAMED[0]), DONE]))
    assert last_error(capped.post(body("cap", turn(3), stream=True)))["message"] == "Too hot."


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Answer([b'{"detail": "Too hot."}'], 422), "Too hot."),
        (Answer([b'{"object": "error", "message": "Too hot."}'], 400), "Too hot."),
        (Answer([b'{\n "error": {\n  "message": "Too hot."}\n}'], 429), "Too hot."),
        (Answer([b"upstream connect error"], 503, PLAIN), "upstream connect error"),
        (Answer([as_event(NAMED[0])], headers=dict(STREAM)), "Too hot."),
    ],
    ids=["detail", "object", "on several lines", "text", "event"],
)
def test_in_a_stream_that_has_begun_a_refusal_is_an_error_event(
    serve: Serve, upstream: FakeUpstream, refusal: Answer, message: str
) -> None:
    waiting = serve({"fill": {"strategy": "compress", "max_tokens": 1200}}, server={"sse_keepalive_s": 0.05})
    upstream.on(
        "fill",
        lambda r: Answer([completion("Rivers.")], before=OpensLater(0.5)) if r.is_summary else refusal,
    )
    got = waiting.post({"model": "fill", "messages": over(14), "stream": True}, x_session_id="waited")
    assert got.body.startswith(b": transom\n")
    assert last_error(got)["message"] == message


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "said"),
    [(502, b"<html><h1>Bad gateway</h1></html>"), (500, b""), (503, b"no healthy upstream"), (400, b'"No."')],
)
def test_what_gateways_say_is_told_in_json(
    proxy: Proxy, upstream: FakeUpstream, status: int, said: bytes, streamed: bool
) -> None:
    upstream.on("plain", Answer([said], status, {"content-type": "text/html"}))
    upstream.at("embeddings", Answer([said], status, {"content-type": "text/html"}))
    for got in (
        proxy.post(HELLO | {"stream": streamed}),
        request(proxy.port, "/v1/embeddings", {"model": "plain", "input": "Hello."}, JSON | key("acme")),
    ):
        assert (got.status, got.headers["content-type"]) == (status, "application/json")
        assert got.json["error"]["message"]


# ---------------------------------------------------------------------- answers of another type than they say
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_stream_of_another_name_is_a_stream(proxy: Proxy, upstream: FakeUpstream, streamed: bool, kind: str) -> None:
    parts = [b": hello\n\n", *spoken("Yes", "."), DONE]
    upstream.on("plain", Answer(parts, headers={"content-type": kind}))
    got = proxy.post(HELLO | {"stream": streamed})
    assert got.status == 200
    if streamed:
        assert got.headers["content-type"].startswith("text/event-stream")
        assert got.body.endswith(DONE)
        assert b'"content":"Yes."' in got.body
    else:
        assert got.message["content"] == "Yes."


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("before", [b"", b"\n\n ", b"\xef\xbb\xbf"], ids=["plain", "blanks", "mark"])
def test_json_that_calls_itself_a_stream(proxy: Proxy, upstream: FakeUpstream, before: bytes, streamed: bool) -> None:
    whole = before + completion("Yes.")
    upstream.on("plain", Answer([whole[:40], whole[40:]], headers=dict(STREAM)))
    got = proxy.post(HELLO | {"stream": streamed})
    assert got.status == 200
    if streamed:
        assert got.body.endswith(DONE)
        assert b'"content":"Yes."' in got.body
    else:
        assert got.message["content"] == "Yes."


def test_what_breaks_off_after_the_end_takes_nothing_from_the_answer(proxy: Proxy, upstream: FakeUpstream) -> None:
    for rest in (b'data: {"choices": [], "usa', b"data: [DO", b"dat", b": comm"):
        upstream.on("plain", stream([*spoken("Yes", "."), rest]))
        got = proxy.post(HELLO | {"stream": True})
        assert got.body == b"".join(spoken("Yes", ".")) + DONE


def test_blanks_are_no_answer_at_the_cap(serve: Serve, upstream: FakeUpstream) -> None:
    calling = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "look"}}]}
    blank = stream([event({"role": "assistant", "content": " \n"}), event(calling), event({}, "tool_calls"), DONE])
    upstream.on("cap", blank, stream([*spoken("Enough."), DONE]))
    got = serve({"cap": CAP}).post(body("cap", turn(3), stream=True))
    assert got.body == b"".join([*spoken("Enough."), DONE])
    assert ["tools" in r.fields for r in upstream.to("cap")] == [True, False]
