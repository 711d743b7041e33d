from typing import Any

import pytest

from tests.policies.builders import assistant, call, calls, exchanges, policy, result, thread, user
from transom.policies.items import Message
from transom.policies.options import Policy
from transom.policies.tool_limit import GAVE_UP, NOTE, Reason, tool_limit_reached


def rounds(count: int, arguments: str = "{}", text: str = "same") -> list[Message]:
    """Build `count` rounds of one call, with ids of their own; `#` in a text stands for the round's number."""
    made: list[Message] = []
    for n in range(count):
        identity, number = f"c{n}", str(n)
        made.append(calls((identity, "look", arguments.replace("#", number))))
        made.append(Message("tool", text.replace("#", number).encode(), b"", 5, 1, answers=identity))
    return made


def reached(*messages: Message, chosen: Policy | None = None, **keys: object) -> Reason | None:
    caps = chosen or policy(**{"max_tool_calls_per_turn": None, **keys})
    return tool_limit_reached(thread(*messages), caps, lambda message: message.payload.decode())


def test_rule_1_calls_are_counted_after_the_last_user_message() -> None:
    before = [user("a"), *rounds(9)]
    assert reached(*before, user("b"), *rounds(1), max_tool_calls_per_turn=2) is None
    assert reached(*before, user("b"), *rounds(2), max_tool_calls_per_turn=2) == "calls"


def test_rule_1_a_parallel_batch_counts_each_of_its_calls_and_passes_whole() -> None:
    batch = [
        calls(*((f"p{n}", "look", "{}") for n in range(5))),
        *(result(f"p{n}") for n in range(5)),
    ]
    assert reached(user("a"), *rounds(1), max_tool_calls_per_turn=3) is None
    assert reached(user("a"), *rounds(1), *batch, max_tool_calls_per_turn=3) == "calls"


def test_rule_1_rounds_are_assistant_messages_with_calls() -> None:
    batch = [calls(("p", "f", "{}"), ("q", "f", "{}")), result("p"), result("q")]
    assert reached(user("a"), *batch, assistant("b"), max_tool_rounds_per_turn=2) is None
    assert reached(user("a"), *batch, *rounds(1), max_tool_rounds_per_turn=2) == "rounds"


def test_rule_1_it_is_counted_whatever_a_window_would_keep() -> None:
    assert reached(*exchanges(50), user("a"), *rounds(10), max_tool_calls_per_turn=10) == "calls"


@pytest.mark.parametrize(("made", "reason"), [(0, None), (9, None), (10, "calls"), (11, "calls")])
def test_rule_2_a_cap_is_reached_with_as_many_calls_as_it_allows(made: int, reason: Reason | None) -> None:
    assert reached(user("a"), *rounds(made), chosen=policy()) == reason


def test_rule_2_without_a_cap_none_is_reached() -> None:
    assert reached(user("a"), *rounds(500)) is None


def test_rule_2_calls_are_looked_at_before_rounds_before_repetition() -> None:
    turn = [user("a"), *rounds(3)]
    caps: dict[str, Any] = {"max_tool_calls_per_turn": 3, "max_tool_rounds_per_turn": 3, "max_repeated_tool_calls": 3}
    assert reached(*turn, **caps) == "calls"
    assert reached(*turn, **{**caps, "max_tool_calls_per_turn": None}) == "rounds"
    assert reached(*turn, max_repeated_tool_calls=3) == "repeated"


def test_rule_2_under_strategy_none_only_written_caps_count() -> None:
    turn = [user("a"), *rounds(20)]
    assert reached(*turn, chosen=policy(strategy="none")) is None
    assert reached(*turn, chosen=policy(strategy="none", max_tool_calls_per_turn=20)) == "calls"


def test_rule_3_the_same_round_again_and_again_is_repetition() -> None:
    assert reached(user("a"), *rounds(2), max_repeated_tool_calls=3) is None
    assert reached(user("a"), *rounds(3), max_repeated_tool_calls=3) == "repeated"


@pytest.mark.parametrize(
    "turn",
    [
        rounds(3, arguments="page #"),
        rounds(3, text="found #"),
        [*rounds(2), call("z"), result("z", "another")],
        [call("z"), result("z", "another"), *rounds(2)],
        [*rounds(2), calls(("y", "look", "{}"), ("z", "look", "{}")), result("y", "same"), result("z", "same")],
    ],
)
def test_rule_3_other_arguments_results_or_calls_are_not(turn: list[Message]) -> None:
    assert reached(user("a"), *turn, max_repeated_tool_calls=3) is None


def test_rule_3_only_the_newest_rounds_are_looked_at() -> None:
    assert reached(user("a"), call("z"), result("z", "other"), *rounds(3), max_repeated_tool_calls=3) == "repeated"


def test_rule_3_words_in_between_do_not_part_rounds() -> None:
    first, second = rounds(1), rounds(1)
    assert reached(user("a"), *first, assistant("again"), *second, max_repeated_tool_calls=2) == "repeated"


def test_rule_3_repetition_does_not_reach_over_a_user_message() -> None:
    assert reached(user("a"), *rounds(2), user("b"), *rounds(1), max_repeated_tool_calls=3) is None


def test_rule_3_a_call_without_its_result_yet_is_another_round() -> None:
    assert reached(user("a"), *rounds(2), call("z"), max_repeated_tool_calls=3) is None


def test_rule_3_parallel_results_may_come_in_any_order() -> None:
    batch = calls(("x", "f", "{}"), ("y", "g", "{}"))
    x, y = (Message("tool", text, b"", 5, 1, answers=i) for i, text in (("x", b"found"), ("y", b"missing")))
    assert reached(user("a"), batch, x, y, batch, y, x, max_repeated_tool_calls=2) == "repeated"


def test_the_texts_say_what_happened() -> None:
    assert "tool budget" in NOTE.lower()
    assert "not finished" in NOTE
    assert "limit of tool calls" in GAVE_UP
