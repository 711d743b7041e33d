from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import (
    assistant,
    call,
    calls,
    exchanges,
    policy,
    result,
    system,
    thread,
    user,
)
from tests.policies.histories import Move, moves, torn
from transom.policies.items import Message
from transom.policies.protection import Protection, settled
from transom.policies.view import Size, Substitute, Summary, View

PROFILE = settings.get_profile("policies")


def protected(*messages: Message, **keys: object) -> list[int]:
    return Protection(thread(*messages), policy(**keys)).positions()


def test_an_empty_thread_protects_nothing() -> None:
    guard = Protection(thread(), policy())
    assert guard.positions() == []
    assert guard.broken() == frozenset()


def test_the_last_user_message_is_protected() -> None:
    assert protected(user("a"), user("b"), assistant("c"), assistant("d")) == [1, 3]


def test_the_last_message_is_protected_with_its_whole_group() -> None:
    assert protected(user("a"), calls(("x", "f", "{}"), ("y", "f", "{}")), result("y"), result("x")) == [0, 1, 2, 3]


def test_an_orphan_is_protected_only_at_the_very_end() -> None:
    assert protected(user("a"), result("stray"), assistant("b"), result("stray")) == [0, 3]


def test_an_open_group_is_protected() -> None:
    assert protected(user("a"), assistant("b"), calls(("x", "f", "{}"), ("y", "f", "{}")), result("x")) == [0, 2, 3]


def test_an_abandoned_group_is_not() -> None:
    assert protected(user("a"), call("x"), user("b")) == [2]


def test_pinned_turns_keep_their_user_messages_and_only_these() -> None:
    messages = [assistant("greeting"), user("a"), user("b"), assistant("c"), *exchanges(3)]
    assert protected(*messages, keep_first_turns=2) == [1, 2, 4, 8, 9]


def test_later_system_messages_are_protected_unless_they_are_ordinary() -> None:
    messages = [user("a"), system("b"), user("c"), assistant("d")]
    assert protected(*messages) == [1, 2, 3]
    assert protected(*messages, mid_system="ordinary") == [2, 3]


def test_an_ordinary_system_message_at_the_end_is_the_last_message() -> None:
    assert protected(user("a"), system("b"), mid_system="ordinary") == [0, 1]


def test_positions_before_an_end() -> None:
    history = thread(user("a"), call("x"), system("s"), user("b"), result("x"))
    guard = Protection(history, policy())
    assert guard.positions() == [1, 2, 3, 4]
    assert guard.positions(4) == [1, 2, 3]
    assert guard.positions(2) == [1]
    assert guard.positions(0) == []


@PROFILE
@given(moves(20), st.sets(st.integers(0, 30), max_size=4), st.integers(0, 3), st.sampled_from(["keep", "ordinary"]))
def test_positions_are_those_of_all_groups_that_must_stay(
    script: list[Move], missing: set[int], pinned: int, mid_system: str
) -> None:
    history = thread(*torn(script, missing))
    guard = Protection(history, policy(keep_first_turns=pinned, mid_system=mid_system))
    covered = sorted(p for group in history.outline.groups if guard.covers(group) for p in group.members)
    assert guard.positions() == covered
    end = len(history) // 2
    assert guard.positions(end) == [p for p in covered if p < end]


def test_a_cut_drops_what_is_broken_but_not_what_is_protected() -> None:
    history = thread(user("a"), call("x"), result("stray"), user("b"), result("other"))
    assert Protection(history, policy()).broken() == {1, 2}


def test_a_cut_drops_turn_0_once_somebody_has_spoken() -> None:
    opening = [assistant("hello"), call("x"), result("x"), system("rule")]
    assert Protection(thread(*opening), policy()).broken() == frozenset()
    assert Protection(thread(*opening, user("a")), policy()).broken() == {0, 1, 2}
    assert Protection(thread(*opening, user("a")), policy(mid_system="ordinary")).broken() == {0, 1, 2, 3}


def test_pinned_are_the_user_messages_of_the_first_turns() -> None:
    messages = [assistant("greeting"), user("a"), user("b"), assistant("c"), *exchanges(3)]
    assert Protection(thread(*messages), policy()).pinned() == []
    assert Protection(thread(*messages), policy(keep_first_turns=2)).pinned() == [1, 2, 4]


def test_the_floor_is_preamble_summary_and_what_is_protected() -> None:
    history = thread(system("s", 5), user("a", 10), assistant("b", 10), user("c", 20))
    guard = Protection(history, policy())
    assert guard.floor(View()) == Size(25, 2)
    assert guard.floor(View(2, (), Summary(b"", "", 7, 2))) == Size(32, 3)


def test_the_floor_counts_only_what_is_in_the_view_and_as_it_is_there() -> None:
    history = thread(user("a", 10), system("s", 10), user("c", 20))
    guard = Protection(history, policy())
    assert guard.floor(View(start=2)) == Size(20, 1)
    assert guard.floor(View().substituted({1: Substitute("cleared", 3)})) == Size(23, 2)


def remembered(view: View, *messages: Message, **keys: object) -> View:
    history = thread(*messages)
    return settled(history, Protection(history, policy(**keys)), view)


def test_a_remembered_view_stays_as_it_is_where_nothing_happened_since() -> None:
    view = View(start=2)
    assert remembered(view, *exchanges(3)) is view


def test_a_result_that_came_after_its_call_was_cut_is_left_out() -> None:
    messages = [user("a"), call("x"), user("c"), assistant("e"), user("d"), result("x"), assistant("f"), user("g")]
    view = remembered(View(start=4), *messages)
    assert list(view.positions(len(messages))) == [4, 6, 7]


def test_what_is_pinned_now_stands_again_whoever_made_the_view() -> None:
    view = remembered(View(start=4, head=(2,)), *exchanges(4), keep_first_turns=1)
    assert list(view.positions(8)) == [0, 2, 4, 5, 6, 7]
