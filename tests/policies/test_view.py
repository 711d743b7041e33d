import operator
from types import MappingProxyType

import pytest

from tests.policies.builders import assistant, call, exchanges, result, system, thread, user
from transom.policies.items import Message
from transom.policies.options import Policy
from transom.policies.protection import Protection
from transom.policies.view import Recalled, Size, Substitute, Summary, View

SUMMARY = Summary(b"s", "[Conversation Summary] so far", 7, 4)


def kept(view: View, length: int = 10) -> list[int]:
    return list(view.positions(length))


def test_a_new_view_is_the_history_as_it_is() -> None:
    assert View().is_whole
    assert kept(View(), 3) == [0, 1, 2]
    assert View().reach == 0


@pytest.mark.parametrize(
    "view",
    [
        View(start=1),
        View(summary=SUMMARY),
        View(omitted=frozenset({1})),
        View(substitutes={1: Substitute("", 4)}),
        View(recalled=Recalled("", 4, 2)),
    ],
)
def test_any_change_makes_it_another(view: View) -> None:
    assert not view.is_whole


def test_positions_are_the_head_then_all_from_the_start_but_the_omitted() -> None:
    view = View(start=5, head=(0, 3), omitted=frozenset({6, 8}))
    assert kept(view) == [0, 3, 5, 7, 9]
    assert [p for p in range(10) if view.keeps(p)] == kept(view)


def test_sizes_add_up() -> None:
    assert Size(1, 2) + Size(3, 4) == Size(4, 6)
    with pytest.raises(TypeError):
        operator.add(Size(1, 2), (3, 4))


def test_a_view_knows_its_size() -> None:
    history = thread(system("p", 5), *exchanges(4, tokens=10))
    assert View().size(history) == Size(85, 9)
    assert View(start=4, head=(0, 2)).size(history) == Size(65, 7)
    assert View(start=4, omitted=frozenset({5})).size(history) == Size(35, 4)
    assert View(start=4, summary=SUMMARY).size(history) == Size(52, 6)
    assert View(substitutes={1: Substitute("", 4)}).size(history) == Size(79, 9)
    assert View(recalled=Recalled("", 8, 6)).size(history) == Size(93, 10)


def test_a_carried_summary_is_counted_where_it_stands() -> None:
    history = thread(*exchanges(2, tokens=10))
    view = View(1, (), SUMMARY, substitutes={1: Substitute(SUMMARY.text, 9)}, carrier=1)
    assert view.summary_message is None
    assert view.size(history) == Size(29, 3)


def test_removing_the_oldest_moves_the_start() -> None:
    view = View().without([0, 1], ())
    assert (view.start, view.head, view.omitted) == (2, (), frozenset())


def test_removing_leaves_what_stands_before_in_the_head() -> None:
    view = View().without([1, 4], ())
    assert (view.start, view.head) == (5, (0, 2, 3))


def test_removing_nothing_changes_nothing() -> None:
    view = View(start=3, head=(1,), omitted=frozenset({5}))
    assert view.without((), ()) == view


def test_dropping_what_is_broken_leaves_the_start_where_it_is() -> None:
    view = View(start=3, head=(1, 2)).without((), [2, 5, 7])
    assert (view.start, view.head, view.omitted) == (3, (1,), frozenset({5, 7}))


def test_broken_messages_before_a_cut_are_gone_with_it() -> None:
    view = View().without([4], [2, 6])
    assert (view.start, view.head, view.omitted) == (5, (0, 1, 3), frozenset({6}))


def test_what_is_both_removed_and_broken_does_not_move_the_start() -> None:
    assert View().without([1, 4], [4]) == View(start=2, head=(0,), omitted=frozenset({4}))


def test_substitutes_go_with_their_messages() -> None:
    view = View().substituted({1: Substitute("a", 4), 5: Substitute("b", 4)}).without([0, 1], ())
    assert dict(view.substitutes) == {5: Substitute("b", 4)}


def test_later_substitutes_are_added_and_the_newest_counts() -> None:
    view = View().substituted({1: Substitute("a", 4), 2: Substitute("b", 4)}).substituted({2: Substitute("c", 5)})
    assert dict(view.substitutes) == {1: Substitute("a", 4), 2: Substitute("c", 5)}
    assert isinstance(view.substitutes, MappingProxyType)
    assert view.reach == 3


def test_a_summary_goes_with_its_carrier_and_stays_without() -> None:
    view = View(2, (), SUMMARY, substitutes={3: Substitute(SUMMARY.text, 9)}, carrier=3)
    assert view.without([2], ()).carrier == 3
    assert view.without([2], ()).summary == SUMMARY
    gone = view.without([2, 3], ())
    assert (gone.carrier, gone.summary, dict(gone.substitutes)) == (None, None, {})


def test_folding_replaces_the_beginning() -> None:
    view = View().folded(SUMMARY, [], ())
    assert view == View(4, (), SUMMARY)
    assert view.reach == 4


def test_folding_keeps_some_of_the_beginning_in_order() -> None:
    view = View().folded(SUMMARY, [3, 1], [2, 6])
    assert (view.start, view.head, view.omitted) == (4, (1, 3), frozenset({6}))


def test_folding_after_a_deeper_cut_brings_nothing_back() -> None:
    view = View(start=8, head=(2, 5, 7)).folded(SUMMARY, [2], ())
    assert (view.start, view.head) == (8, (2, 5, 7))


def test_a_second_fold_replaces_the_first_summary() -> None:
    second = Summary(b"t", "newer", 9, 7)
    assert View().folded(SUMMARY, [1], ()).folded(second, [], ()) == View(7, (), second)


def test_folding_keeps_the_substitutes_of_what_is_kept() -> None:
    texts = {p: Substitute(str(p), 4) for p in (0, 1, 5)}
    assert set(View().substituted(texts).folded(SUMMARY, [1], ()).substitutes) == {1, 5}


def test_folding_puts_an_end_to_a_carrier() -> None:
    carried = View(2, (), SUMMARY, substitutes={2: Substitute(SUMMARY.text, 9)}, carrier=2)
    view = carried.folded(Summary(b"t", "newer", 9, 4), [], ())
    assert (view.carrier, dict(view.substitutes)) == (None, {})


def test_what_is_removed_from_beside_a_summary_is_owed_to_the_next() -> None:
    view = View().folded(SUMMARY, [1, 3], ()).without([3, 5], ())
    assert view.owed == {3}
    assert view.without([1], ()).owed == {1, 3}
    assert view.folded(Summary(b"t", "newer", 9, 7), [], ()).owed == frozenset()


FIRST = [user("a"), assistant("b"), user("c"), call("x"), user("d")]


def first_cut() -> View:
    view = View().without([0, 1], Protection(thread(*FIRST), Policy()).broken())
    assert kept(view, 5) == [2, 4]
    return view


def resumed(view: View, *messages: Message) -> list[int]:
    """Return what a thread keeps that starts from this view."""
    return kept(view.baseline().without((), Protection(thread(*messages), Policy()).broken()), len(messages))


def test_a_view_reaches_as_far_as_it_says_anything() -> None:
    assert first_cut().reach == 4
    assert View(start=2).reach == 2
    assert View(substitutes={7: Substitute("", 4)}).reach == 8


def test_another_thread_starts_from_a_view_without_what_was_broken_in_the_first() -> None:
    assert first_cut().baseline().reach == 2
    assert resumed(first_cut(), *FIRST[:2], user("another question"), user("more"), assistant("an answer")) == [2, 3, 4]


def test_a_call_whose_result_comes_late_is_sent_again() -> None:
    assert resumed(first_cut(), *FIRST, result("x")) == [2, 3, 4, 5]


def test_what_was_recalled_for_one_request_is_not_for_the_next() -> None:
    assert View(start=3, recalled=Recalled("", 8, 6)).baseline() == View(start=3)
