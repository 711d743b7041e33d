"""What is stored of a conversation, on either database: new messages only, branches, preambles once per content."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.e2e.conftest import POLICIES, Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream, call, ordinary, say
from tests.proxy.e2e.served import Proxy, Talk, assistant, config, long_text, result, serving, user


@pytest.fixture(scope="module")
def keeper(running_upstream: FakeUpstream, database_url: str) -> Iterator[Proxy]:
    """Run a proxy on SQLite or PostgreSQL."""
    with serving(config(running_upstream.url, POLICIES, database=database_url)) as proxy:
        yield proxy


def stored(proxy: Proxy, session: str) -> list[dict[str, Any]]:
    """Return the messages of a session as the admin API exports them."""
    got = proxy.get(f"/admin/sessions/{proxy.session_id(session).hex()}/export")
    assert got.status == 200, got.body
    lines = [json.loads(line) for line in got.body.splitlines()]
    return [line for line in lines if line["type"] == "message"]


def shown(proxy: Proxy, session: str) -> dict[str, Any]:
    """Return a session as the admin API shows it."""
    return proxy.get(f"/admin/sessions/{proxy.session_id(session).hex()}").json


def test_resent_history_writes_only_what_is_new(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "resent")
    for turn in range(6):
        talk.say(f"Sentence {turn}.")
        lines = stored(keeper, "resent")
        assert [line["message"] for line in lines] == talk.messages
        assert [line["parent"] for line in lines] == [None, *(line["id"] for line in lines[:-1])]
    assert all(line["complete"] for line in lines)


def test_equal_messages_are_not_one(keeper: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", say("Yes."))
    talk = Talk(keeper, "plain", "equal")
    for _ in range(4):
        talk.say("Yes.")
    assert [line["message"]["content"] for line in stored(keeper, "equal")] == ["Yes."] * 8


def test_the_same_again_adds_nothing(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "again")
    talk.say("One.")
    talk.messages.append(user("Two."))
    first, second = talk.send(), talk.send()
    assert (first.window, second.window) == (["fits"], ["replayed"])
    assert first.body == second.body
    assert len(stored(keeper, "again")) == 4
    assert upstream.received[-1].body == upstream.received[-2].body


def test_another_answer_to_the_same_is_its_sibling(keeper: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", say("One way."), say("Another way."), ordinary)
    talk = Talk(keeper, "plain", "siblings")
    talk.messages.append(user("How?"))
    talk.send()
    talk.messages.append(talk.send().message)
    talk.say("And then?")
    lines = stored(keeper, "siblings")
    texts = ["How?", "One way.", "Another way.", "And then?", "Answer 3."]
    assert [line["message"]["content"] for line in lines] == texts
    assert lines[1]["parent"] == lines[2]["parent"] == lines[0]["id"]
    assert lines[3]["parent"] == lines[2]["id"]


def test_an_edit_branches_and_nothing_is_overwritten(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "edited")
    for turn in range(3):
        talk.say(f"Sentence {turn}.")
    talk.messages[2] = user("Something else.")
    del talk.messages[3:]
    assert talk.send().status == 200
    assert upstream.received[-1].texts == ["Sentence 0.", "Answer 1.", "Something else."]
    lines = stored(keeper, "edited")
    assert len(lines) == 8
    assert lines[6]["parent"] == lines[1]["id"]


def test_an_undo_and_the_old_end_again(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "undone")
    for turn in range(3):
        talk.say(f"Sentence {turn}.")
    whole = list(talk.messages)
    talk.messages = whole[:3]
    talk.send()
    talk.messages = [*whole, user("On.")]
    talk.send()
    assert len(stored(keeper, "undone")) == 8


def test_fields_that_are_no_identity_change_nothing_but_are_sent(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "fields")
    talk.say("One.")
    talk.say("Two.")
    talk.messages[1] |= {"refusal": None, "annotations": []}
    talk.messages[0]["content"] = [{"type": "text", "text": "One.", "cache_control": {"type": "ephemeral"}}]
    talk.say("Three.")
    assert len(stored(keeper, "fields")) == 6
    assert upstream.received[-1].messages == talk.messages[:-1]


def test_tool_calls_and_results(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(keeper, "plain", "tools")
    upstream.on("plain", say(None, calls=[call("a", arguments='{ "x": 1 }'), call("b")]), ordinary)
    talk.say("Look.")
    talk.messages[-1]["tool_calls"][0]["function"]["arguments"] = '{"x":1}'  # a client that formats them anew
    talk.messages += [result("b"), result("a")]
    talk.messages.append(talk.send().message)
    assert [line["message"]["role"] for line in stored(keeper, "tools")] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


def test_several_threads_in_one_session(keeper: Proxy, upstream: FakeUpstream) -> None:
    main, title = Talk(keeper, "plain", "threads"), Talk(keeper, "plain", "threads")
    main.say("Long work.")
    title.say("Make a title.")
    main.say("Go on.")
    title.say("Another.")
    lines = stored(keeper, "threads")
    assert len(lines) == 8
    assert sum(line["parent"] is None for line in lines) == 2


def test_strange_texts_come_back_as_they_were(keeper: Proxy, upstream: FakeUpstream) -> None:
    text = "NUL \x00, an emoji \U0001f600, a line end \u2028, " + "x" * 100_000
    talk = Talk(keeper, "plain", "strange")
    talk.say(text)
    assert stored(keeper, "strange")[0]["message"]["content"] == text
    body = b'{"model":"plain","messages":[{"role":"user","n":18446744073709551616,"content":"big"}]}'
    assert keeper.post(body, x_session_id="strange").status == 200
    assert any(line["message"].get("n") == 2**64 for line in stored(keeper, "strange"))


def test_a_preamble_with_a_clock(keeper: Proxy, upstream: FakeUpstream) -> None:
    turns, calls = 60, []
    for name in ("clock", "no-clock"):
        upstream.clear()
        talk = Talk(keeper, "fill", name)
        for turn in range(turns):
            system = {"role": "system", "content": f"It is {turn if name == 'clock' else 0}:00."}
            talk.messages = [system, *talk.messages[1 if turn else 0 :]]
            got = talk.say(long_text(f"Turn {turn}", 80))
            assert got.status == 200
            assert upstream.to("fill")[-1].texts[0] == system["content"]
            assert got.tokens["sent"] <= 1200
        calls.append(len(upstream.summary_calls()))
        assert len(stored(keeper, name)) == 2 * turns
        assert len(shown(keeper, name)["requests"]) == turns
    assert calls[1] > 1
    assert calls[0] <= calls[1] + 1


def test_preambles_are_stored_once_per_content(proxy: Proxy, upstream: FakeUpstream) -> None:
    for hour in (1, 1, 2, 1):
        messages = [{"role": "system", "content": f"It is {hour}."}, {"role": "developer", "content": "Be kind."}]
        for turn in range(2):
            said = [user("Hi."), assistant("Ho."), user("On.")][: 1 + 2 * turn]
            proxy.post({"model": "plain", "messages": [*messages, *said]}, x_session_id="preambles")
    rows = proxy.rows("preambles")
    assert len(rows.preambles) == 2
    assert len({row["preamble"] for row in rows.requests}) == 2
    assert len(rows.requests) == 8


def test_history_grows_alike_without_a_cache(serve: Serve, upstream: FakeUpstream) -> None:
    sent: list[list[bytes]] = []
    for name, memory in (("cached", 64), ("uncached", 0)):
        proxy = serve(limits={"history_cache_mb": memory})
        upstream.clear()
        upstream.number_summaries("fill")
        talks = [Talk(proxy, "fill", f"{name}-{i}") for i in range(2)]
        for turn in range(14):
            for talk in talks:  # in turns, so that each pushes the other out of memory
                assert talk.say(long_text(f"Turn {turn}", 150)).status == 200
        for i, talk in enumerate(talks):
            assert [line["message"] for line in stored(proxy, f"{name}-{i}")] == talk.messages
        sent.append([r.body for r in upstream.to("fill")])
        proxy.close()
    assert sent[0] == sent[1]


def test_going_on_is_counted_as_such(proxy: Proxy, upstream: FakeUpstream) -> None:
    before = proxy.metric('transom_history_match_total{kind="extend"')
    talk = Talk(proxy, "plain", "counted")
    for turn in range(4):
        talk.say(f"Sentence {turn}.")
    assert proxy.metric('transom_history_match_total{kind="extend"') >= before + 3
