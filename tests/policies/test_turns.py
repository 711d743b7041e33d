import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.builders import (
    assistant,
    call,
    calls,
    function_call,
    function_result,
    result,
    segment,
    system,
    user,
)
from transom.policies.items import Message
from transom.policies.turns import Outline


def groups(*messages: Message) -> list[tuple[str, list[int]]]:
    return [(group.kind, group.members) for group in segment(messages).groups]


def broken(outline: Outline) -> list[int]:
    return sorted(outline.broken())


def test_an_empty_thread_has_nothing() -> None:
    outline = segment([])
    assert len(outline) == outline.current_turn == 0
    assert outline.last_user is None
    assert outline.groups == outline.iterations(0) == []
    assert broken(outline) == []


def test_rule_1_a_turn_is_a_run_of_user_messages_and_all_that_follows() -> None:
    outline = segment([user("a"), user("b"), assistant("c"), system("d"), user("e"), assistant("f")])
    assert outline.turn_starts == [0, 4]
    assert [group.turn for group in outline.groups] == [1, 1, 1, 1, 2, 2]
    assert (outline.current_turn, outline.last_user, len(outline)) == (2, 4, 6)


def test_rule_1_a_system_message_between_two_user_messages_parts_their_turns() -> None:
    assert segment([user("a"), system("b"), user("c")]).turn_starts == [0, 2]


def test_rule_1_what_comes_before_the_first_user_message_is_turn_0() -> None:
    outline = segment([assistant("a"), call("c"), result("c"), user("b")])
    assert outline.turn_starts == [3]
    assert [group.turn for group in outline.groups] == [0, 0, 1]


def test_rule_1_without_a_user_message_turn_0_is_the_current_one() -> None:
    outline = segment([assistant("a"), assistant("b")])
    assert (outline.current_turn, outline.last_user) == (0, None)


def test_rule_2_each_kind_of_group() -> None:
    assert groups(
        user("a"), assistant("b"), system("c"), calls(("x", "f", "{}"), ("y", "g", "{}")), result("x"), result("y")
    ) == [("user", [0]), ("assistant", [1]), ("system", [2]), ("tools", [3, 4, 5])]


def test_rule_2_consecutive_user_messages_are_groups_of_their_own() -> None:
    assert groups(user("a"), user("b")) == [("user", [0]), ("user", [1])]


def test_rule_2_a_developer_message_is_a_system_group() -> None:
    assert groups(user("a"), Message("developer", b"", b"", 4, 1))[1] == ("system", [1])


def test_rule_3_a_result_joins_the_nearest_earlier_call_with_its_id_that_is_unanswered() -> None:
    assert groups(call("x"), call("x"), result("x", "newer"), result("x", "older")) == [
        ("tools", [0, 3]),
        ("tools", [1, 2]),
    ]


def test_rule_3_an_id_may_be_called_again() -> None:
    assert groups(call("x"), result("x"), call("x"), result("x")) == [("tools", [0, 1]), ("tools", [2, 3])]


def test_rule_3_the_same_id_twice_in_one_message_awaits_two_results() -> None:
    twice = calls(("x", "f", "1"), ("x", "f", "2"))
    assert groups(twice, result("x"), result("x"), result("x")) == [("tools", [0, 1, 2]), ("orphan", [3])]


def test_rule_3_results_come_in_any_order_and_not_necessarily_next_to_the_call() -> None:
    outline = segment(
        [calls(("x", "f", "{}"), ("y", "g", "{}")), result("y"), user("wait"), assistant("yes"), result("x")]
    )
    assert outline.groups[0].members == [0, 1, 4]
    assert list(outline.owner) == [0, 0, 1, 2, 0]
    assert list(outline.scattered()) == [outline.groups[0]]
    assert broken(outline) == []


def test_rule_3_a_group_side_by_side_is_not_scattered() -> None:
    assert list(segment([call("x"), result("x"), user("a")]).scattered()) == []


def test_rule_4_legacy_functions_pair_by_name() -> None:
    assert groups(
        function_call("f"), function_result("f"), function_call("g"), function_result("f"), function_result("g")
    ) == [("tools", [0, 1]), ("tools", [2, 4]), ("orphan", [3])]


@pytest.mark.parametrize("answered", [(), ("x",), ("y",)])
def test_rule_5_a_group_is_open_while_a_call_waits_and_only_its_results_follow(answered: tuple[str, ...]) -> None:
    outline = segment([user("a"), calls(("x", "f", "{}"), ("y", "g", "{}")), *(result(i) for i in answered)])
    assert outline.is_open(outline.groups[-1])
    assert not outline.is_broken(outline.groups[-1])
    assert broken(outline) == []


def test_rule_5_a_complete_group_is_not_open() -> None:
    outline = segment([user("a"), call("x"), result("x")])
    assert not any(map(outline.is_open, outline.groups))


@pytest.mark.parametrize("after", [user("b"), assistant("b"), system("b"), result("stray"), call("y")])
def test_rule_6_what_follows_an_unanswered_call_abandons_it(after: Message) -> None:
    outline = segment([user("a"), calls(("x", "f", "{}"), ("y", "g", "{}")), result("x"), after])
    assert not outline.is_open(outline.groups[1])
    assert outline.is_broken(outline.groups[1])
    assert {1, 2} <= set(broken(outline))


def test_rule_6_a_result_without_a_call_is_an_orphan() -> None:
    outline = segment([user("a"), result("x"), result("")])
    assert [group.kind for group in outline.groups[1:]] == ["orphan", "orphan"]
    assert all(map(outline.is_broken, outline.groups[1:]))
    assert broken(outline) == [1, 2]


def test_rule_6_a_result_that_comes_at_last_mends_what_was_abandoned() -> None:
    outline = segment([call("x"), user("a")])
    assert broken(outline) == [0]
    outline.append(result("x"))
    assert broken(outline) == []


def test_rule_7_an_iteration_is_a_group_led_by_an_assistant_message() -> None:
    messages = [user("a"), call("x"), result("x"), assistant("b"), user("c"), system("d"), call("y"), assistant("e")]
    outline = segment(messages)
    assert [g.members for g in outline.iterations(1)] == [[1, 2], [3]]
    assert [g.members for g in outline.iterations(2)] == [[6], [7]]
    assert outline.iterations(0) == []
    assert [g.is_iteration for g in outline.groups] == [False, True, True, False, False, True, True]


def test_rule_8_calls_and_rounds_are_counted_since_the_last_user_message() -> None:
    outline = segment([user("a"), call("x"), result("x")])
    assert (outline.calls_since_user, outline.rounds_since_user) == (1, 1)
    for message in [calls(("x", "f", "{}"), ("y", "g", "{}")), result("x"), result("y"), assistant("b")]:
        outline.append(message)
    assert (outline.calls_since_user, outline.rounds_since_user) == (3, 2)
    outline.append(user("c"))
    assert (outline.calls_since_user, outline.rounds_since_user) == (0, 0)


KINDS = [user("u"), assistant("a"), system("s"), call("x"), call("y"), result("x"), result("y")]


@given(st.lists(st.sampled_from(KINDS)))
def test_every_message_is_in_exactly_one_group(messages: list[Message]) -> None:
    outline = segment(messages)
    members = sorted(p for group in outline.groups for p in group.members)
    assert members == list(range(len(messages)))
    assert all(p in outline.groups[outline.owner[p]].members for p in members)
    assert all(group.members == sorted(group.members) for group in outline.groups)
