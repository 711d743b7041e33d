"""At the cap of tool calls the model gets a last chance to answer; what it does instead never reaches the client."""

import json
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import (
    DONE,
    Answer,
    FakeUpstream,
    Received,
    call,
    completion,
    event,
    ordinary,
    say,
    spoken,
    stream,
)
from tests.proxy.e2e.served import Json, Proxy, Talk, assistant, long_text, request, result, user
from transom.policies.tool_limit import GAVE_UP, NOTE

CAP = {"strategy": "truncate", "max_tokens": 2000, "max_tool_calls_per_turn": 3}
POLICIES: dict[str, dict[str, Any]] = {
    "cap": CAP,
    "quiet": CAP | {"tool_limit_note": False},
    "strict": CAP | {"on_tool_limit": "error"},
    "rounds": CAP | {"max_tool_calls_per_turn": None, "max_tool_rounds_per_turn": 2},
    "repeats": CAP | {"max_tool_calls_per_turn": None, "max_repeated_tool_calls": 3},
    "none": {"strategy": "none"},
    "none-written": {"strategy": "none", "max_tool_calls_per_turn": 3},
}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
def capped(serve: Serve) -> Proxy:
    return serve(POLICIES)


def turn(calls: int, *, rounds: int | None = None, same: bool = False) -> list[Json]:
    """Return a turn with so many calls, one each round or all in `rounds`."""
    messages = [user("Look.")]
    for at in range(rounds or calls):
        made = [
            call(f"c{at}-{i}", arguments="{}" if same else f'{{"x":{at}}}') for i in range(calls // (rounds or calls))
        ]
        messages += [assistant(None, made), *(result(c["id"], "same" if same else f"found {c['id']}") for c in made)]
    return messages


def body(model: str, messages: list[Json], **more: Any) -> Json:
    return {"model": model, "tools": TOOLS, "tool_choice": "auto", "messages": messages} | more


CALLING = say(None, calls=[call("more")])
CALL_STREAM = stream(
    [
        event({"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call("more")}]}),
        event({}, "tool_calls"),
        DONE,
    ]
)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_final_answer_is_asked_for(capped: Proxy, upstream: FakeUpstream, streamed: bool) -> None:
    messages = turn(3)
    got = capped.post(body("cap", messages, stream=streamed))
    assert got.status == 200
    assert got.headers["x-transom-tool-limit"] == "calls"
    (sent,) = upstream.to("cap")
    assert sent.fields["tool_choice"] == "none"
    assert sent.fields["tools"] == TOOLS
    assert sent.messages == [*messages, user(NOTE)]
    assert b"Answer 8." in got.body


def test_below_the_cap_nothing_is_touched(capped: Proxy, upstream: FakeUpstream) -> None:
    sent = json.dumps(body("cap", turn(2))).encode()
    upstream.on("cap", CALLING)
    got = capped.post(sent)
    assert "x-transom-tool-limit" not in got.headers
    assert upstream.received[0].body == sent
    assert got.message["tool_calls"]


def test_a_new_user_message_begins_anew(capped: Proxy, upstream: FakeUpstream) -> None:
    got = capped.post(body("cap", [*turn(3), assistant("Well."), user("More.")]))
    assert "x-transom-tool-limit" not in got.headers


def test_a_parallel_batch_that_crosses_the_cap_passes_whole(capped: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("cap", say(None, calls=[call(f"p{i}") for i in range(4)]), ordinary)
    talk = Talk(capped, "cap", "batch")
    talk.more = {"tools": TOOLS}
    talk.messages = turn(2)
    got = talk.send()
    assert len(got.message["tool_calls"]) == 4
    talk.messages += [got.message, *(result(f"p{i}") for i in range(4))]
    assert talk.send().headers["x-transom-tool-limit"] == "calls"


def test_without_a_note(capped: Proxy, upstream: FakeUpstream) -> None:
    messages = turn(3)
    assert capped.post(body("quiet", messages)).headers["x-transom-tool-limit"] == "calls"
    assert upstream.to("quiet")[0].messages == messages


def test_without_tools_no_choice_is_added(capped: Proxy, upstream: FakeUpstream) -> None:
    capped.post({"model": "cap", "messages": turn(3)})
    assert "tool_choice" not in upstream.to("cap")[0].fields


@pytest.mark.parametrize(
    ("model", "messages", "reason"),
    [
        ("rounds", turn(8, rounds=2), "rounds"),
        ("rounds", turn(8, rounds=1), None),
        ("repeats", turn(3, same=True), "repeated"),
        ("repeats", turn(3), None),
        ("repeats", turn(2, same=True), None),
        ("none", turn(12), None),
        ("none-written", turn(3), "calls"),
    ],
)
def test_the_other_caps(
    capped: Proxy, upstream: FakeUpstream, model: str, messages: list[Json], reason: str | None
) -> None:
    assert capped.post(body(model, messages)).headers.get("x-transom-tool-limit") == reason


def test_error_mode(capped: Proxy, upstream: FakeUpstream) -> None:
    got = capped.post(body("strict", turn(3)))
    assert got.error == (400, "tool_call_limit_exceeded", None)
    assert got.headers["x-transom-tool-limit"] == "calls"
    assert upstream.received == []
    assert capped.post(body("strict", turn(2))).status == 200


def test_error_mode_leaves_the_thread_as_it_was(capped: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(capped, "strict", "refused")
    talk.messages = turn(2)
    talk.send()
    talk.messages = turn(3)
    assert talk.send().status == 400
    state = capped.transom._cache.get(capped.session_id("refused")) if capped.transom else None
    assert state is not None
    assert [thread.users for thread in state.threads] == [0] * len(state.threads)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_calls_all_the_same_is_asked_without_tools(
    capped: Proxy, upstream: FakeUpstream, streamed: bool
) -> None:
    final = stream([*spoken("At ", "last."), DONE]) if streamed else say("At last.")
    upstream.on("cap", CALL_STREAM if streamed else CALLING, final)
    got = capped.post(body("cap", turn(3), stream=streamed), idempotency_key="k", x_session_id=f"ignores-{streamed}")
    assert got.status == 200
    assert got.body == b"".join(p for p in final.parts if isinstance(p, bytes))
    first, second = upstream.to("cap")
    assert {"tools", "tool_choice"} <= first.fields.keys()
    assert not {"tools", "tool_choice"} & second.fields.keys()
    assert second.messages == first.messages
    assert [r.headers.get("idempotency-key") for r in (first, second)] == ["k", None]
    texts = [json.loads(row["payload"]).get("content") for row in capped.rows(f"ignores-{streamed}").messages]
    assert texts[-1] == "At last."
    assert len(texts) == 8  # nothing of the calls, nor of the note


def test_a_server_that_refuses_none_is_asked_without_tools(capped: Proxy, upstream: FakeUpstream) -> None:
    refusal = Answer([b'{"error": {"message": "tool_choice none is not supported"}}'], 400)
    upstream.on("cap", lambda r: refusal if "tool_choice" in r.fields else ordinary(r))
    got = capped.post(body("cap", turn(3)))
    assert got.status == 200
    assert len(upstream.to("cap")) == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["cap", "none-written"])
@pytest.mark.parametrize(
    "refusal",
    [
        "Unexpected role 'user' after role 'tool'",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "roles must alternate between user and assistant",
    ],
)
def test_a_server_that_takes_no_note_behind_results_gets_none(
    capped: Proxy, upstream: FakeUpstream, refusal: str, model: str, streamed: bool
) -> None:
    def strict(received: Received) -> Answer:
        if received.messages[-1]["role"] == "user":
            return Answer([b'{"error": {"message": "%b"}}' % refusal.encode()], 400)
        return ordinary(received)

    upstream.on(model, strict)
    messages = turn(3)
    for requests in (2, 1):  # the model is known from then on
        upstream.received.clear()
        got = capped.post(body(model, messages, stream=streamed))
        assert (got.status, got.headers["x-transom-tool-limit"]) == (200, "calls")
        assert len(upstream.received) == requests
        assert upstream.received[-1].messages == messages
        assert upstream.received[-1].fields["tool_choice"] == "none"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_never_stops_calling(capped: Proxy, upstream: FakeUpstream, streamed: bool) -> None:
    upstream.on("cap", CALL_STREAM if streamed else CALLING)
    got = capped.post(body("cap", turn(3), stream=streamed), x_session_id=f"never-{streamed}")
    assert got.status == 200
    assert GAVE_UP.encode() in got.body
    assert b"tool_calls" not in got.body
    assert len(upstream.to("cap")) == 2
    if streamed:
        assert got.events[-1] == DONE


def test_a_model_that_says_nothing_at_the_cap(capped: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("cap", say(""))
    assert capped.post(body("cap", turn(3))).message["content"] == GAVE_UP


def test_calls_after_text_are_dropped(capped: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("cap", say("Here it is.", calls=[call("more")]))
    got = capped.post(body("cap", turn(3)), x_session_id="dropped")
    choice = got.json["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": "Here it is."}
    assert b"more" not in capped.rows("dropped").messages[-1]["payload"]


def test_calls_after_text_are_dropped_from_a_stream(capped: Proxy, upstream: FakeUpstream) -> None:
    first = spoken("Here ", "it is.")[:-1]
    calls = [event({"tool_calls": [{"index": 0, **call("more")}]}), event({}, "tool_calls")]
    upstream.on("cap", stream([*first, *calls, DONE]))
    got = capped.post(body("cap", turn(3), stream=True), x_session_id="dropped-stream")
    assert got.body.startswith(b"".join(first))
    assert b'"tool_calls"' not in got.body
    ends = [json.loads(e[6:])["choices"][0]["finish_reason"] for e in got.events[:-1]]
    assert ends[-1] == "stop"
    assert got.events[-1] == DONE
    assert b"more" not in capped.rows("dropped-stream").messages[-1]["payload"]


def test_the_cap_is_counted_before_anything_is_cut(capped: Proxy, upstream: FakeUpstream) -> None:
    messages = [user("Look.")]
    for at in range(3):
        messages += [assistant(None, [call(f"c{at}")]), result(f"c{at}", long_text(f"Result {at}", 900))]
    got = capped.post(body("cap", messages))
    assert got.headers["x-transom-tool-limit"] == "calls"
    assert "cut" in got.window
    sent = upstream.to("cap")[0].messages
    assert sent[-1] == user(NOTE)
    assert len(sent) < len(messages)


def test_what_the_client_broke_is_forwarded_until_something_is_cut(
    capped: Proxy, running_upstream: FakeUpstream
) -> None:
    running_upstream.clear()
    orphan = [result("nobody"), user("Hi."), assistant(None, [call("lost")]), user("On.")]
    assert (
        request(
            capped.port, body={"model": "cap", "messages": orphan}, headers={"authorization": "Bearer key-of-acme"}
        ).status
        == 200
    )
    assert running_upstream.received[-1].messages == orphan
    running_upstream.clear()
    long = [*orphan, *(m for i in range(8) for m in (user(long_text(f"T{i}", 300)), assistant("Fine."))), user("End.")]
    assert capped.post({"model": "cap", "messages": long}).window == ["cut"]
    sent = running_upstream.received[-1].messages
    assert not any(m["role"] == "tool" or m.get("tool_calls") for m in sent)
    assert running_upstream.refusals == []
    running_upstream.clear()


def test_open_groups_stay_whole(capped: Proxy, upstream: FakeUpstream) -> None:
    def script(received: Received) -> Answer:
        return Answer([completion("Good.")])

    upstream.on("cap", script)
    old = [m for i in range(8) for m in (user(long_text(f"T{i}", 300)), assistant("Fine."))]
    batch = [call("a"), call("b")]
    messages = [*old, user("Both."), assistant(None, batch), result("b", "found b"), result("a", "found a")]
    assert capped.post(body("cap", messages)).window == ["cut"]
    assert upstream.to("cap")[0].messages[-4:] == messages[-4:]
