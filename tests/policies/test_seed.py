"""The behaviour a context window was first described with: compress, then truncate, under four parameters."""

import pytest

from tests.policies.builders import (
    Session,
    Writer,
    assistant,
    calls,
    compressed,
    decide,
    exchanges,
    policy,
    result,
    sent,
    system,
    thread,
    truncated,
    user,
)
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.render import INSTRUCTION, LABEL, Spoken, line, summary_request, summary_text, transcript
from transom.policies.tool_limit import tool_limit_reached
from transom.policies.view import Summary, View

AGENT = system("You are a helpful travel assistant.")
PLAN = [
    user("Plan for Dubai"),
    calls(("w", "get_weather", '{"city": "Dubai"}')),
    result("w", "22 °C"),
    calls(("c", "get_clothing_advice", '{"temperature": 22}')),
    result("c", "a light jacket"),
    calls(("a", "get_activity_suggestion", '{"temperature": 22, "clothing": "jacket"}')),
    result("a", "hiking"),
    assistant("Dubai is 22 °C, wear a jacket, go hiking!"),
]


def text_of(message: Message) -> str:
    return message.payload.decode()


@pytest.mark.parametrize(
    ("parameter", "default"),
    [
        ("max_tokens", None),
        ("max_context_items", None),
        ("keep_recent_turns", 3),
        ("max_tool_calls_per_turn", 10),
        ("summary_model", None),  # falls back to the request's own
    ],
)
def test_the_parameters_and_their_defaults(parameter: str, default: object) -> None:
    assert getattr(Policy(), parameter) == default


def test_the_cycle_is_compress_then_truncate() -> None:
    assert Policy().trimmers == ("compress", "truncate")


def test_without_limits_nothing_is_ever_done() -> None:
    writer = Writer()
    decided = decide(thread(AGENT, *exchanges(200)), View(), Limits(), Policy(), writer)
    assert (decided.view, decided.steps, writer.asked) == (View(), [], [])


@pytest.mark.parametrize("limits", [Limits(tokens=99), Limits(items=9)])
def test_either_limit_triggers_it(limits: Limits) -> None:
    decided = decide(thread(*exchanges(5)), View(), limits, Policy(), Writer())
    assert decided.view.summary is not None


@pytest.mark.parametrize(("turns", "folds"), [(3, False), (4, True)])
def test_it_compresses_where_there_are_more_user_turns_than_are_kept(turns: int, folds: bool) -> None:
    history = thread(*exchanges(turns))
    assert compressed(history, limits=Limits(items=2 * turns - 1), policy=Policy()).trimmed is folds


# Step 1: compress

TALK = [AGENT, *PLAN, *exchanges(3)]


def fold() -> tuple[Writer, View]:
    writer = Writer()
    return writer, compressed(thread(*TALK), limits=Limits(items=14), policy=Policy(), writer=writer).view


def test_step_1_split_parts_old_items_from_the_last_user_exchanges() -> None:
    writer, view = fold()
    assert writer.asked[0].span == tuple(range(len(PLAN)))
    assert sent(thread(*TALK), view)[1:] == [text_of(m) for m in exchanges(3)]


def test_step_2_render_makes_readable_text_of_old_items() -> None:
    said = [Spoken(m.role, [text_of(m)] if not m.calls else [], [(c.name, c.arguments) for c in m.calls]) for m in PLAN]
    text = transcript(map(line, said))
    assert "User: Plan for Dubai" in text
    assert 'Assistant calls get_weather({"city": "Dubai"})' in text
    assert "Dubai is 22 °C, wear a jacket, go hiking!" in text


def test_step_3_summarize_asks_a_model_once_with_that_text() -> None:
    writer, _ = fold()
    assert len(writer.asked) == 1
    instruction, record = summary_request(None, "User: Plan for Dubai", nonce="n", limit=500)
    assert instruction.startswith("You maintain the running summary")
    assert "User: Plan for Dubai" in record


def test_step_4_replace_puts_one_tagged_summary_in_place_of_all_old_items() -> None:
    _, view = fold()
    assert view.summary is not None
    assert view.summary_message == view.summary
    assert sent(thread(*TALK), view) == [LABEL, *(text_of(m) for m in exchanges(3))]
    assert summary_text("They went hiking.", "", current_turn=False).startswith("[Conversation Summary]")


@pytest.mark.parametrize(
    "kind",
    [
        "key facts, names, numbers",
        "decisions, and why they were made",
        "its result or outcome",
        "promised or committed to",
        "the user's objectives and preferences, and every task that is not finished",
    ],
)
def test_the_summary_preserves(kind: str) -> None:
    assert kind in INSTRUCTION


# Step 2: truncate


def test_the_oldest_are_removed_one_at_a_time_until_both_limits_hold() -> None:
    exact, history = policy(trim_to=1.0), thread(AGENT, *exchanges(6))
    size = truncated(history, limits=Limits(60 + AGENT.tokens, 5), policy=exact).view.size(history)
    assert size.items == 5
    size = truncated(history, limits=Limits(20 + AGENT.tokens, 11), policy=exact).view.size(history)
    assert size.tokens == 20 + AGENT.tokens


def test_system_summary_and_last_user_message_are_never_removed() -> None:
    history = thread(AGENT, *exchanges(3), user("the last", 500))
    summary = Summary(b"s", f"{LABEL} so far", 50, 2)
    done = truncated(history, View(2, (), summary), limits=Limits(600, 3), policy=policy(trim_to=0.1))
    assert sent(history, done.view) == [LABEL, "the last"]
    assert done.view.size(history).tokens == AGENT.tokens + 50 + 500


def test_calls_and_results_are_removed_together() -> None:
    for items in range(1, 12):
        history = thread(AGENT, user("first"), *PLAN[1:], user("last"))
        done = truncated(history, limits=Limits(items=items), policy=policy(trim_to=1.0, keep_first_turns=1))
        kept = [history.messages[p] for p in done.view.positions(len(history))]
        made = [call.id for m in kept for call in m.calls]
        assert made == [m.answers for m in kept if m.answers]


def test_it_stops_when_only_protected_items_remain_even_if_still_over() -> None:
    history = thread(AGENT, *exchanges(3), user("the last", 500))
    done = truncated(history, limits=Limits(items=1, tokens=600), policy=policy(trim_to=0.1))
    assert not done.trimmed  # of one item, the instruction and the last message are two: it can't be had
    done = truncated(history, limits=Limits(items=2), policy=policy(trim_to=0.1))
    assert sent(history, done.view) == ["the last"]


# Tool chaining


def test_three_chained_calls_and_an_answer_pass() -> None:
    session, limits = Session(), Limits(4000, 20)
    for end in (1, 3, 5, 7, 8):
        history = thread(AGENT, *PLAN[:end])
        assert tool_limit_reached(history, policy(preset="voice"), text_of) is None
        assert session.request(history, limits, policy(preset="voice")).view == View()


def test_the_tenth_call_of_a_turn_is_the_last() -> None:
    turn = [user("go")]
    for n in range(10):
        assert tool_limit_reached(thread(*turn), Policy(), text_of) is None
        turn += [calls((f"c{n}", "look", "{}")), result(f"c{n}")]
    assert tool_limit_reached(thread(*turn), Policy(), text_of) == "calls"
    assert tool_limit_reached(thread(*turn, user("go on")), Policy(), text_of) is None


@pytest.mark.parametrize("items", range(1, 13))
def test_parallel_calls_of_one_response_stay_together_with_their_results(items: int) -> None:
    batch = [calls(*((f"p{n}", "look", "{}") for n in range(4))), *(result(f"p{n}") for n in range(4))]
    history = thread(*exchanges(2), user("all four"), *batch)
    decided = decide(history, View(), Limits(items=items), Policy(), Writer())
    assert {4, 5, 6, 7, 8, 9} <= set(decided.view.positions(len(history)))
