"""What was cut comes back when the user asks for it, but never over a limit: not beside a large preamble, not later."""

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream, call
from tests.proxy.e2e.served import Json, Talk, assistant, long_text, user

RECALL = {"strategy": ["truncate", "recall"], "max_tokens": 1000, "recall_tokens": 400, "compact_at": None}
QUESTION = "What is my locker code?"


def told() -> list[Json]:
    """Return a history that is over the limit, with a code in its first message."""
    messages = [user(f"My locker code is QR37900, {long_text('remember', 160)}."), assistant("I will.")]
    for turn in range(8):
        messages += [user(long_text(f"Turn {turn}", 140)), assistant("Fine.")]
    return messages


def round_of(number: int, tokens: int) -> list[Json]:
    """Return one call and its result."""
    name = f"call{number}"
    content = long_text(f"Result {number}", tokens)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call(name)]},
        {"role": "tool", "tool_call_id": name, "content": content},
    ]


def test_what_the_user_asks_for_is_brought_back(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"recall": RECALL})
    got = proxy.post({"model": "recall", "messages": [*told(), user(QUESTION)]})
    assert got.window == ["cut", "recalled"]
    assert "QR37900" in upstream.to("recall")[0].texts[-2]
    assert got.tokens["sent"] <= 1000


def test_room_set_aside_for_recall_never_costs_the_limit(serve: Serve, upstream: FakeUpstream) -> None:
    talk = Talk(serve({"recall": RECALL}), "recall", "large-preamble")
    talk.messages.append({"role": "system", "content": long_text("Rules", 620)})  # with what recall may have over 1,000
    for turn in range(12):
        got = talk.say(long_text(f"Turn {turn}", 100))
        assert got.tokens["sent"] <= 1000
        assert "over-budget" not in got.window
    assert "cut" in got.window or got.tokens["before"] > 1000
    assert len(upstream.to("recall")[-1].messages) < len(talk.messages)


def test_in_a_turn_that_grows_what_was_recalled_gives_way(serve: Serve, upstream: FakeUpstream) -> None:
    talk = Talk(serve({"recall": RECALL}), "recall", "long-turn")
    talk.messages = [*told(), user(QUESTION)]
    first = talk.send()
    talk.messages += round_of(1, 850)
    second = talk.send()
    assert "recalled" in first.window
    assert ("recalled" in second.window, "over-budget" in second.window) == (False, False)
    assert 850 < second.tokens["sent"] <= 1000
    assert upstream.to("recall")[-1].messages[-3:] == talk.messages[-3:]


def test_a_view_with_what_was_recalled_is_not_over_when_it_is_sent_again(serve: Serve) -> None:
    proxy = serve({"recall": RECALL | {"trim_to": 1.0, "on_unfit": "error"}})
    body = {"model": "recall", "messages": [*told(), user(QUESTION)]}
    first, again = (proxy.post(body, x_session_id="twice") for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    assert first.tokens["sent"] > 1000 - 400  # more than a view is cut to
    assert "recalled" in first.window
    assert again.window == ["replayed", *first.window]
    assert again.tokens["sent"] == first.tokens["sent"]
