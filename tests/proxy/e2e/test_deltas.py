"""Clients that send only what is new: what goes up, what is stored, and what is refused, on either database."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.proxy.e2e.conftest import POLICIES, Serve, sqlite
from tests.proxy.e2e.fake_upstream import (
    DONE,
    Answer,
    FakeUpstream,
    Gate,
    call,
    completion,
    ordinary,
    say,
)
from tests.proxy.e2e.served import Got, Json, Proxy, Talk, assistant, config, long_text, result, serving, user
from tests.proxy.e2e.test_compress import until
from tests.proxy.e2e.test_history import stored

SYSTEM = {"role": "system", "content": "Be brief."}
CONFLICT = (409, "session_conflict", "X-Transom-Parent")


@pytest.fixture(scope="module")
def keeper(running_upstream: FakeUpstream, database_url: str) -> Iterator[Proxy]:
    """Run a proxy on SQLite or PostgreSQL."""
    with serving(config(running_upstream.url, POLICIES, database=database_url)) as proxy:
        yield proxy


class Deltas:
    """One conversation of a client that sends each message once."""

    def __init__(self, proxy: Proxy, model: str = "plain", session: str | None = None) -> None:
        self.proxy, self.model = proxy, model
        self.session = session or uuid4().hex
        self.head: str | None = None
        self.more: Json = {}

    def send(self, *messages: Json, parent: str | None = None, **headers: str) -> Got:
        """Send new messages after the head, or another parent; what is answered is the new head."""
        after = parent or self.head
        named = {"x_session_id": self.session, "x_session_history": "delta"} | headers
        if after is not None:
            named["x_transom_parent"] = after
        got = self.proxy.post({"model": self.model, "messages": list(messages), **self.more}, **named)
        if got.status == 200:
            self.head = head_of(got)
        return got

    @property
    def lines(self) -> list[Json]:
        return stored(self.proxy, self.session)

    @property
    def texts(self) -> list[Any]:
        return [line["message"]["content"] for line in self.lines]


def head_of(got: Got) -> str | None:
    """Return the head an answer names: in its headers, or in a stream's last comment."""
    comments = [line for line in got.body.decode().split("\n") if line.startswith(": x-transom-head=")]
    return comments[0].partition("=")[2] if comments else got.headers.get("x-transom-head")


# ---------------------------------------------------------------------- what goes up, and what is stored
def test_only_what_is_new_is_sent_and_all_goes_up(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    said: list[Json] = [SYSTEM]
    for turn in range(4):
        new = [*([SYSTEM] if turn == 0 else []), user(f"Sentence {turn}.")]
        got = talk.send(*new)
        said.append(new[-1])
        assert got.status == 200, got.body
        assert upstream.received[-1].messages == said
        assert got.headers["x-session-id"] == talk.session
        said.append(got.message)
    assert [line["message"] for line in talk.lines] == said[1:]
    assert talk.lines[-1]["id"] == talk.head


def test_streams_name_the_head_before_their_end(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    talk.more = {"stream": True}
    for turn in range(3):
        got = talk.send(user(f"Sentence {turn}."))
        assert got.status == 200
        assert got.body.endswith(f": x-transom-head={talk.head}\n".encode() + DONE)
    assert upstream.received[-1].texts == ["Sentence 0.", "Answer 1.", "Sentence 1.", "Answer 3.", "Sentence 2."]
    assert talk.lines[-1]["id"] == talk.head


def test_tool_calls_and_results(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    upstream.on("plain", say(None, calls=[call("a"), call("b")]), ordinary)
    talk.send(user("Look."))
    talk.send(result("b"), result("a"))
    talk.send(user("Thanks."))
    roles = ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [m["role"] for m in upstream.received[-1].messages] == roles
    assert upstream.refusals == []


def test_what_the_answer_held_beside_its_text_goes_up_again(keeper: Proxy, upstream: FakeUpstream) -> None:
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "x": [1.50]}
    answer = json.loads(completion())
    answer["choices"][0]["message"] = message
    upstream.on("plain", Answer([json.dumps(answer).encode()]), ordinary)
    talk = Deltas(keeper)
    talk.send(user("One."))
    talk.send(user("Two."))
    assert upstream.received[-1].messages == [user("One."), message, user("Two.")]


def test_later_system_messages_stay_where_they_were_sent(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk, later = Deltas(keeper), {"role": "system", "content": "Be long."}
    talk.send(SYSTEM, user("One."))
    talk.send(later, user("Two."))
    assert upstream.received[-1].messages == [SYSTEM, user("One."), assistant("Answer 2."), later, user("Two.")]


@pytest.mark.parametrize("first", [[SYSTEM], [assistant("Hello.")]], ids=["a preamble alone", "a greeting"])
def test_unusual_beginnings(serve: Serve, upstream: FakeUpstream, first: list[Json]) -> None:
    proxy = serve()
    talk = Deltas(proxy)
    talk.send(*first)
    talk.send(user("Two."))
    sent = [*first, assistant("Answer 1."), user("Two.")]
    assert upstream.received[-1].messages == sent
    proxy.close()
    talk.proxy = serve()
    talk.send(user("Three."))
    assert upstream.received[-1].messages == [*sent, assistant("Answer 3."), user("Three.")]


@pytest.mark.parametrize("policy", ["fill", "turns", "cut"])
def test_policies_act_as_on_whole_histories(keeper: Proxy, upstream: FakeUpstream, policy: str) -> None:
    upstream.number_summaries(policy)
    talk = Deltas(keeper, policy)
    windows = []
    for turn in range(16):
        got = talk.send(user(long_text(f"Turn {turn}", 150)))
        windows += got.window
    assert {"compressed", "cut"} & set(windows)
    assert len(talk.lines) == 32
    assert len(upstream.to(policy)[-1].messages) < 20


# ---------------------------------------------------------------------- after a restart
@pytest.mark.parametrize("policy", ["plain", "fill"])
def test_after_a_restart(upstream: FakeUpstream, database_url: str, tmp_path: Path, policy: str) -> None:
    upstream.number_summaries("fill")
    url = sqlite(tmp_path) if database_url.startswith("sqlite") else database_url
    mapping = config(upstream.url, POLICIES, database=url)
    with serving(mapping) as proxy:
        talk, whole = Deltas(proxy, policy), Talk(proxy, policy, uuid4().hex)
        talk.send(SYSTEM)
        whole.messages = [SYSTEM]
        whole.messages.append(whole.send().message)
        for turn in range(10):
            talk.send(user(long_text(f"Turn {turn}", 150)))
            whole.say(long_text(f"Turn {turn}", 150))
    with serving(mapping) as proxy:
        talk.proxy = whole._proxy = proxy
        for turn in range(2):
            got, same = talk.send(user(f"Once more {turn}.")), whole.say(f"Once more {turn}.")
            assert (got.status, got.window) == (200, same.window)
            ours, theirs = upstream.to(policy)[-2:]
            assert _less_summary(ours.messages) == _less_summary(theirs.messages)
        assert len(talk.lines) == len(stored(proxy, whole._headers["x_session_id"])) == 25


def _less_summary(messages: list[Json]) -> list[Json]:
    return [m for m in messages if not str(m["content"]).startswith("[Conversation Summary]")]


def test_what_memory_forgot_is_read_back(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(limits={"history_cache_mb": 0.001})
    talks = [Deltas(proxy) for _ in range(3)]
    for turn in range(3):
        for talk in talks:
            assert talk.send(user(f"Sentence {turn}.")).status == 200
    for talk in talks:
        assert [line["message"]["role"] for line in talk.lines] == ["user", "assistant"] * 3


def test_what_is_erased_is_not_found(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    talk.send(user("One."))
    assert keeper.get(f"/admin/sessions/{keeper.session_id(talk.session).hex()}", method="DELETE").status == 200
    upstream.received.clear()
    assert talk.send(user("Two.")).error == (404, "session_not_found", "X-Transom-Parent")
    assert upstream.received == []
    talk.head = None
    assert talk.send(user("Anew.")).status == 200
    assert talk.send(user("On.")).status == 200


def test_what_is_erased_while_the_model_answers_stays_erased(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk, hold = Deltas(keeper), Gate()
    talk.send(user("One."))
    upstream.on("plain", Answer([completion("Held.")], before=hold), ordinary)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(talk.send, user("Two."))
        until(lambda: len(upstream.received) == 2)
        assert keeper.get(f"/admin/sessions/{keeper.session_id(talk.session).hex()}", method="DELETE").status == 200
        hold.open()
        assert waiting.result().status == 200
    assert talk.send(user("Three.")).error[:2] == (404, "session_not_found")
    assert len(upstream.received) == 2


# ---------------------------------------------------------------------- heads
@pytest.mark.parametrize("parent", ["none", None])
def test_a_session_that_holds_messages_wants_a_parent(
    keeper: Proxy, upstream: FakeUpstream, parent: str | None
) -> None:
    talk = Deltas(keeper)
    talk.send(user("One."), parent=parent)
    first, talk.head = talk.head, None
    got = talk.send(user("Two."), parent=parent)
    assert got.error == CONFLICT
    assert got.headers["x-should-retry"] == "false"
    assert talk.send(user("Two."), parent=first).status == 200
    assert talk.send(user("Another two."), parent=first).error == CONFLICT
    assert talk.texts == ["One.", "Answer 1.", "Two.", "Answer 3."]


@pytest.mark.parametrize("parent", ["0" * 32, "nonsense", "é", "abcd"])
def test_parents_that_nobody_stored(keeper: Proxy, upstream: FakeUpstream, parent: str) -> None:
    talk = Deltas(keeper)
    assert talk.send(user("One."), parent=parent).error[:2] == (404, "session_not_found")
    talk.send(user("One."))
    assert talk.send(user("Two."), parent=parent).error[:2] == (404, "session_not_found")


def test_the_head_of_another_session(keeper: Proxy, upstream: FakeUpstream) -> None:
    one, other = Deltas(keeper), Deltas(keeper)
    one.send(user("One."))
    other.send(user("One."))
    assert other.send(user("Two."), parent=one.head).error[:2] == (404, "session_not_found")


def test_the_head_of_another_tenant(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    talk.send(user("One."))
    assert talk.send(user("Two."), tenant="beta").error[:2] == (404, "session_not_found")
    assert talk.send(user("Two.")).status == 200


def test_a_whole_history_under_way_is_a_turn(keeper: Proxy, upstream: FakeUpstream) -> None:
    whole, hold = Talk(keeper, "plain", uuid4().hex), Gate()
    talk = Deltas(keeper, session=whole._headers["x_session_id"])
    talk.head = head_of(whole.say("One.", x_session_history="full"))
    upstream.on("plain", Answer([completion("Held.")], before=hold), ordinary)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(whole.say, "Two.")
        until(lambda: len(upstream.received) == 2)
        assert talk.send(user("Other two.")).error == CONFLICT
        hold.open()
        assert waiting.result().status == 200
    assert talk.texts == ["One.", "Answer 1.", "Two.", "Held."]


def test_each_choice_is_a_head(keeper: Proxy, upstream: FakeUpstream) -> None:
    answer = json.loads(completion("One way."))
    answer["choices"].append({"index": 1, "message": assistant("Another way."), "finish_reason": "stop"})
    upstream.on("plain", Answer([json.dumps(answer).encode()]), ordinary)
    talk = Deltas(keeper)
    talk.more = {"n": 2}
    talk.send(user("How?"))
    assert talk.head is not None
    talk.more, heads = {}, talk.head.split(",")
    for text, head in zip(["One way.", "Another way."], heads, strict=True):
        assert talk.send(user("On."), parent=head).status == 200
        assert upstream.received[-1].texts == ["How?", text, "On."]
    assert talk.send(user("Again."), parent=heads[0]).error == CONFLICT


def test_a_client_that_sends_all_may_go_over_to_deltas_and_back(keeper: Proxy, upstream: FakeUpstream) -> None:
    whole = Talk(keeper, "plain", uuid4().hex)
    whole.messages.append(SYSTEM)
    assert "x-transom-head" not in whole.say("One.").headers
    got = whole.say("Two.", x_session_history="full")
    talk = Deltas(keeper, session=whole._headers["x_session_id"])
    talk.head = head_of(got)
    whole.messages += [user("Three."), talk.send(user("Three.")).message]
    assert upstream.received[-1].messages == whole.messages[:-1]
    whole.say("Four.")
    assert talk.send(user("Four and a half.")).error == CONFLICT
    assert len(talk.lines) == 8


def test_an_edit_of_a_whole_history_makes_another_head(keeper: Proxy, upstream: FakeUpstream) -> None:
    whole = Talk(keeper, "plain", uuid4().hex)
    old = head_of(whole.say("One.", x_session_history="full"))
    whole.messages = [user("Edited.")]
    new = head_of(whole.send(x_session_history="full"))
    talk = Deltas(keeper, session=whole._headers["x_session_id"])
    for head, text in ((old, "One."), (new, "Edited.")):
        assert talk.send(user("On."), parent=head).status == 200
        assert upstream.received[-1].texts[0] == text


# ---------------------------------------------------------------------- what cannot work
def test_what_a_delta_needs(keeper: Proxy, upstream: FakeUpstream) -> None:
    body: Json = {"model": "plain", "messages": [user("Hello.")]}
    assert keeper.post(body, x_session_history="delta").error[:2] == (400, "session_required")
    named = body | {"metadata": {"session_id": "in-the-body"}}
    assert keeper.post(named, x_session_history="delta").error[:2] == (400, "session_required")
    invalid, param = (400, "invalid_request_error"), "X-Session-History"
    kept = {"x_session_id": uuid4().hex}
    assert keeper.post(body, x_session_history="delta", x_transom_store="none", **kept).error == (*invalid, param)
    assert keeper.post(body, x_session_history="some", **kept).error == (*invalid, param)
    assert keeper.post(body, x_transom_parent="0" * 32, **kept).error == (*invalid, "X-Transom-Parent")
    delta = {"x_session_history": "delta"} | kept
    assert keeper.post(body | {"messages": []}, **delta).error == (*invalid, "messages")
    assert keeper.post(body | {"messages": [{}]}, **delta).error == (*invalid, "messages[0].role")
    assert upstream.received == []


@pytest.mark.parametrize("store", ["summaries", "none"])
def test_a_tenant_that_keeps_no_text(serve: Serve, upstream: FakeUpstream, store: str) -> None:
    proxy = serve()
    tenants = proxy._mapping["tenants"]
    talk = Deltas(proxy)
    talk.send(user("One."))
    proxy.reconfigure(tenants=tenants | {"acme": tenants["acme"] | {"store": store}})
    assert talk.send(user("Two.")).error == (400, "invalid_request_error", "X-Session-History")
    assert talk.proxy.post({"model": "plain", "messages": [user("x")]}, x_session_id="s").status == 200


def test_text_that_was_not_kept_is_not_found(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve()
    tenants = proxy._mapping["tenants"]
    proxy.reconfigure(tenants=tenants | {"acme": tenants["acme"] | {"store": "summaries"}})
    for session, messages in (("s", [user("One.")]), ("t", [SYSTEM, user("One.")])):
        got = proxy.post({"model": "plain", "messages": messages}, x_session_id=session, x_session_history="full")
        assert "x-transom-head" not in got.headers
    proxy.close()
    proxy = serve()
    for session in ("s", "t"):
        talk = Deltas(proxy, session=session)
        got = talk.send(user("Two."), parent=talk.lines[-1]["id"])
        assert got.error[:2] == (404, "session_not_found")
        assert "was not stored" in got.json["error"]["message"]


def test_what_a_whole_conversation_may_be_holds_for_deltas(serve: Serve, upstream: FakeUpstream) -> None:
    talk = Deltas(serve(limits={"messages": 4, "body_bytes": 2000}))
    talk.send(user("One."))
    talk.send(user("Two."))
    assert talk.send(user("Three.")).error == (400, "invalid_request_error", "messages")
    talk = Deltas(talk.proxy)
    talk.send(user("x" * 1500))
    assert talk.send(user("x" * 1500)).error[:2] == (413, "body_too_large")
    assert talk.send(user("Short.")).status == 200
