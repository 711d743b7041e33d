import pytest

from tests.policies.builders import (
    Session,
    Writer,
    assistant,
    call,
    calls,
    compressed,
    decide,
    exchanges,
    policy,
    result,
    sent,
    system,
    thread,
    user,
)
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.render import LABEL
from transom.policies.view import Substitute, Summary, View

TURNS = policy(keep_recent_turns=2)
FILL = policy(keep_verbatim="fill", trim_to=0.7, keep_recent_iterations=2)


def iterations(count: int, tokens: int = 10) -> list[Message]:
    """Build `count` rounds of one call and one result, `tokens` each."""
    rounds = [(call(f"c{n}", tokens), result(f"c{n}", f"r{n}", tokens)) for n in range(1, count + 1)]
    return [message for pair in rounds for message in pair]


# When it acts


@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_nothing_is_folded_while_the_limits_hold(chosen: object) -> None:
    writer = Writer()
    done = compressed(thread(*exchanges(5)), limits=Limits(100, 10), policy=chosen, writer=writer)
    assert (done.view, done.trimmed, done.persist) == (View(), False, False)
    assert writer.asked == []


@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_nor_for_a_limit_that_protected_messages_alone_exceed(chosen: object) -> None:
    writer = Writer()
    history = thread(*exchanges(5), user("long", 200))
    assert not compressed(history, limits=Limits(tokens=100), policy=chosen, writer=writer).trimmed
    assert writer.asked == []


@pytest.mark.parametrize("limits", [Limits(tokens=99), Limits(items=9)])
@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_either_limit_makes_it_fold(limits: Limits, chosen: object) -> None:
    assert compressed(thread(*exchanges(5)), limits=limits, policy=chosen).trimmed


@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_a_summary_that_fails_changes_nothing(chosen: object) -> None:
    writer = Writer([None])
    done = compressed(thread(*exchanges(5)), limits=Limits(tokens=60), policy=chosen, writer=writer)
    assert (done.view, done.trimmed, done.persist) == (View(), False, False)
    assert len(writer.asked) == 1


@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_the_view_before_is_left_as_it_was(chosen: object) -> None:
    history, view = thread(*exchanges(6)), View(start=2)
    before = list(history.messages)
    assert compressed(history, view, limits=Limits(tokens=50), policy=chosen).persist
    assert view == View(start=2)
    assert history.messages == before


# Mode `turns`


def test_turns_folds_all_before_the_recent_turns_at_once() -> None:
    history, writer = thread(*exchanges(5)), Writer()
    done = compressed(history, limits=Limits(tokens=99), policy=TURNS, writer=writer)
    assert sent(history, done.view) == [LABEL, "question 4", "answer 4", "question 5", "answer 5"]
    assert (writer.asked[0].span, writer.asked[0].upto) == ((0, 1, 2, 3, 4, 5), 6)


def test_turns_needs_more_turns_than_it_keeps() -> None:
    writer = Writer()
    chosen = policy(keep_recent_turns=5)
    assert not compressed(thread(*exchanges(5)), limits=Limits(tokens=50), policy=chosen, writer=writer).trimmed
    assert writer.asked == []


def test_turns_leaves_what_is_still_too_much_to_the_next() -> None:
    done = compressed(thread(*exchanges(5, 100)), limits=Limits(tokens=250), policy=TURNS)
    assert done.view.start == 6
    assert done.view.size(thread(*exchanges(5, 100))).tokens > 250


def test_turns_folds_turn_0_with_the_rest() -> None:
    history = thread(assistant("hello"), *exchanges(3))
    done = compressed(history, limits=Limits(items=6), policy=TURNS)
    assert sent(history, done.view)[:2] == [LABEL, "question 2"]


def test_turns_takes_a_run_of_user_messages_as_one_turn() -> None:
    history = thread(*exchanges(2), user("a"), user("b"), assistant("c"))
    done = compressed(history, limits=Limits(items=6), policy=TURNS)
    assert sent(history, done.view) == [LABEL, "question 2", "answer 2", "a", "b", "c"]


# Mode `fill`


@pytest.mark.parametrize(
    ("tokens", "upto"),
    [
        (119, 6),  # down to 83: 8 for the summary, 60 kept
        (100, 6),  # down to 70
        (95, 8),  # down to 66
        (60, 10),  # down to 42: only the current turn is left
    ],
)
def test_fill_folds_just_enough_to_come_down_to_trim_to(tokens: int, upto: int) -> None:
    done = compressed(thread(*exchanges(6)), limits=Limits(tokens=tokens), policy=FILL)
    assert done.view.start == upto


def test_fill_wishes_to_keep_recent_turns_but_the_limit_rules() -> None:
    chosen = policy(keep_verbatim="fill", keep_recent_turns=4)
    assert compressed(thread(*exchanges(5)), limits=Limits(tokens=60), policy=chosen).view.start == 8


def test_fill_counts_items_too() -> None:
    assert compressed(thread(*exchanges(6)), limits=Limits(items=11), policy=FILL).view.start == 6  # down to 7


def test_fill_goes_on_into_the_current_turn() -> None:
    history = thread(*exchanges(1), user("now", 10), *iterations(6))
    done = compressed(history, limits=Limits(tokens=100), policy=FILL)  # down to 70: 8 and 10 and 40
    assert done.view.start == 3 + 8
    assert sent(history, done.view)[:2] == [LABEL, "now"]
    assert done.view.head == (2,)


def test_fill_keeps_the_newest_iterations_whatever_that_leaves() -> None:
    history = thread(user("now", 10), *iterations(6, 30))
    done = compressed(history, limits=Limits(tokens=130), policy=FILL)
    assert done.view.start == 1 + 8


def test_fill_may_keep_no_iterations() -> None:
    chosen = policy(keep_verbatim="fill", trim_to=0.1, keep_recent_iterations=0)
    history = thread(user("now", 10), *iterations(3, 30))
    done = compressed(history, limits=Limits(tokens=130), policy=chosen)
    assert list(done.view.positions(len(history))) == [0, 5, 6]  # the last one holds the last message


def test_fill_has_nothing_to_fold_in_one_short_turn() -> None:
    writer = Writer()
    history = thread(user("now", 10), *iterations(2, 30))
    assert not compressed(history, limits=Limits(tokens=100), policy=FILL, writer=writer).trimmed
    assert writer.asked == []


def test_fill_folds_turn_0_first() -> None:
    history = thread(*iterations(1), *exchanges(3))
    assert compressed(history, limits=Limits(tokens=79), policy=policy(keep_verbatim="fill", trim_to=1.0)).view == View(
        2, (), Summary((1).to_bytes(16, "big"), f"{LABEL} 1", 8, 2)
    )


def test_fill_folds_without_any_user_message() -> None:
    history = thread(*iterations(4))
    done = compressed(history, limits=Limits(tokens=79), policy=FILL)
    assert done.view.start == 4


def test_an_abandoned_call_may_be_folded() -> None:
    history = thread(user("now", 10), call("lost", 10), *iterations(4), assistant("a", 10), assistant("b", 10))
    writer = Writer()
    done = compressed(history, limits=Limits(tokens=90), policy=FILL, writer=writer)
    assert 1 in writer.asked[0].span
    assert 1 not in list(done.view.positions(len(history)))


# What is never folded


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_fold_never_goes_past_an_open_group(keep: int) -> None:
    chosen = policy(keep_verbatim="fill", trim_to=0.1, keep_recent_iterations=keep)
    at_work = calls(("x", "f", "{}"), ("y", "f", "{}"), tokens=10)
    history = thread(user("now", 10), *iterations(3), at_work, result("x", tokens=10))
    writer = Writer()
    done = compressed(history, limits=Limits(tokens=80), policy=chosen, writer=writer)
    assert done.view.start == 7 - 2 * max(0, keep - 1)
    assert writer.asked[0].upto <= 7


def test_pinned_later_system_and_last_user_messages_stay_in_order() -> None:
    chosen = policy(keep_verbatim="fill", trim_to=0.1, keep_first_turns=1, keep_recent_iterations=1)
    history = thread(
        system("preamble"),
        *[user("goal"), assistant("a"), system("rule"), user("b"), assistant("c")],
        *[user("now"), assistant("d"), assistant("e")],
    )
    writer = Writer()
    done = compressed(history, limits=Limits(items=8), policy=chosen, writer=writer)
    assert sent(history, done.view) == [LABEL, "goal", "rule", "now", "e"]
    assert writer.asked[0].span == (1, 3, 4, 6)


def test_ordinary_system_messages_are_folded() -> None:
    history = thread(user("a"), system("rule"), assistant("b"), *exchanges(2))
    done = compressed(history, limits=Limits(items=5), policy=policy(keep_recent_turns=2, mid_system="ordinary"))
    assert sent(history, done.view)[:2] == [LABEL, "question 1"]


def test_a_group_that_reaches_beyond_the_fold_stays_whole() -> None:
    history = thread(user("a"), call("x"), user("b"), assistant("c"), result("x"), user("d"))
    done = compressed(history, limits=Limits(items=5), policy=TURNS)
    assert {1, 4} <= set(done.view.positions(len(history)))


def test_what_the_client_broke_is_dropped_with_a_fold() -> None:
    history = thread(*exchanges(3), result("stray"), user("a"), call("lost"), user("b"))
    done = compressed(history, limits=Limits(items=8), policy=policy(keep_recent_turns=3))
    assert sent(history, done.view) == [LABEL, "question 3", "answer 3", "a", "b"]


# The share of what is fixed


@pytest.mark.parametrize(("preamble", "folds"), [(67, True), (68, False)])
def test_no_fold_is_made_where_fixed_parts_exceed_three_quarters_of_the_limit(preamble: int, folds: bool) -> None:
    history = thread(system("p", preamble), *exchanges(5))  # the summary may have 8
    writer = Writer()
    assert compressed(history, limits=Limits(tokens=100), policy=TURNS, writer=writer).trimmed is folds
    assert len(writer.asked) == folds


def test_pinned_messages_are_fixed() -> None:
    pinned = policy(keep_recent_turns=2, keep_first_turns=1)
    goal, rest = user("goal", 70), exchanges(3)
    assert not compressed(thread(goal, assistant("a"), *rest), limits=Limits(tokens=100), policy=pinned).trimmed


def test_the_last_user_message_is_not() -> None:
    history = thread(user("now", 70), *iterations(5))
    assert compressed(history, limits=Limits(tokens=110), policy=FILL).trimmed


def test_without_a_token_limit_no_share_is_asked_for() -> None:
    history = thread(system("p", 10_000), *exchanges(5))
    assert compressed(history, limits=Limits(items=10), policy=TURNS).trimmed


def test_pinned_messages_are_fixed_wherever_they_stand() -> None:
    pinned = policy(keep_recent_turns=2, keep_first_turns=2)
    history = thread(user("a", 10), assistant("b", 40), user("goal", 60), assistant("c", 10), user("d", 10))
    assert not compressed(history, limits=Limits(tokens=90), policy=pinned).trimmed


def test_no_summary_is_made_that_would_keep_the_rest_from_fitting() -> None:
    chosen = policy(keep_verbatim="fill", keep_recent_iterations=1)
    history = thread(user("now", 10), *iterations(4), call("c5", 10), result("c5", tokens=75))
    writer = Writer()
    # The last user message, the open round and a summary of 8 are 103 of 100: with a summary nothing could fit.
    assert not compressed(history, limits=Limits(tokens=100), policy=chosen, writer=writer).trimmed
    assert writer.asked == []
    assert compressed(history, limits=Limits(tokens=103), policy=chosen).trimmed


# What a fold takes, against what it moves

ORDER = policy(keep_verbatim="fill", keep_recent_iterations=1, keep_first_turns=1, trim_to=0.5)


@pytest.mark.parametrize(("rounds", "folds"), [(9, False), (10, True)])
def test_a_fold_waits_until_it_takes_enough_beside_a_large_pinned_message(rounds: int, folds: bool) -> None:
    history, writer = thread(user("order", 30), *iterations(rounds)), Writer()
    done = compressed(history, limits=Limits(tokens=120), policy=ORDER, writer=writer)  # six times 30 are due
    assert (done.trimmed, len(writer.asked)) == (folds, folds)


def test_meanwhile_the_next_trimmer_cuts_and_the_fold_takes_along_what_was_cut() -> None:
    session, limits = Session(), Limits(120)
    for count in range(1, 14):
        decided = session.request(thread(user("order", 30), *iterations(count)), limits, ORDER)
        assert decided.view.keeps(0)
    first, *_ = session.writer.asked
    assert len(session.writer.asked) == 1
    assert first.span[0] == 1
    assert first.span == tuple(range(1, first.upto))


@pytest.mark.parametrize(
    "chosen",
    [
        policy(keep_verbatim="fill", keep_recent_iterations=1, keep_first_turns=1, strategy="compress"),
        policy(keep_verbatim="fill", keep_recent_iterations=1),
    ],
)
def test_a_fold_waits_for_no_other_reason(chosen: object) -> None:
    history = thread(user("order", 30), *iterations(6))
    assert compressed(history, limits=Limits(tokens=120), policy=chosen).trimmed


def test_nor_beside_a_small_pinned_message() -> None:
    history = thread(user("order", 15), *iterations(6))
    assert compressed(history, limits=Limits(tokens=120), policy=ORDER).trimmed


# A second fold


def test_a_second_fold_sees_the_first_summary_and_only_what_is_newly_old() -> None:
    writer, session = Writer(), [*exchanges(5)]
    first = compressed(thread(*session), limits=Limits(items=9), policy=TURNS, writer=writer).view
    session += exchanges(3)
    history = thread(*session)
    second = compressed(history, first, limits=Limits(items=9), policy=TURNS, writer=writer).view
    assert writer.asked[1].previous == first.summary
    assert writer.asked[1].span == tuple(range(6, 12))
    assert second.summary is not None
    assert (second.summary.id, second.summary.upto, second.head) == ((2).to_bytes(16, "big"), 12, ())
    assert writer.stands_for[second.summary.id] == set(range(12))


def test_a_second_fold_takes_the_last_user_message_of_the_turn_before() -> None:
    writer, messages = Writer(), [user("now", 10), *iterations(6)]
    first = compressed(thread(*messages), limits=Limits(tokens=100), policy=FILL, writer=writer).view
    assert first.head == (0,)
    history = thread(*messages, *exchanges(3, 20))
    second = compressed(history, first, limits=Limits(tokens=100), policy=FILL, writer=writer).view
    assert writer.asked[1].span[0] == 0
    assert second.head == ()


def test_nothing_is_folded_twice() -> None:
    writer = Writer()
    history = thread(*exchanges(3, 100))
    view = View(4, (), Summary(b"s", "so far", 8, 4))
    assert not compressed(history, view, limits=Limits(tokens=150), policy=policy(), writer=writer).trimmed
    assert not compressed(history, view, limits=Limits(tokens=201), policy=FILL, writer=writer).trimmed
    assert writer.asked == []


def test_turns_that_are_folded_already_need_no_new_summary() -> None:
    writer = Writer()
    view = View(6, (), Summary(b"s", "so far", 8, 6))
    assert not compressed(thread(*exchanges(5)), view, limits=Limits(tokens=40), policy=TURNS, writer=writer).trimmed
    assert writer.asked == []


@pytest.mark.parametrize("chosen", [TURNS, FILL])
def test_a_fold_after_a_cut_takes_along_what_was_cut(chosen: object) -> None:
    writer = Writer()
    history = thread(*exchanges(6))
    done = compressed(history, View(start=4), limits=Limits(tokens=75), policy=chosen, writer=writer)
    assert writer.asked[0].span[:5] == (0, 1, 2, 3, 4)
    assert done.view.summary is not None
    assert writer.asked[0].span == tuple(range(done.view.summary.upto))


def test_a_cut_deeper_than_the_fold_stays() -> None:
    history = thread(*exchanges(6))
    done = compressed(history, View(start=10), limits=Limits(tokens=19), policy=policy(keep_recent_turns=4))
    assert not done.trimmed  # the current turn alone is too much
    done = compressed(history, View(start=8), limits=Limits(tokens=30), policy=policy(keep_recent_turns=4))
    assert sent(history, done.view) == [LABEL, "question 5", "answer 5", "question 6", "answer 6"]


def test_fill_measures_a_view_that_was_cut_before() -> None:
    history = thread(user("goal", 10), assistant("a", 10), *exchanges(6), system("s", 10))
    view = View(start=6, head=(0, 5)).substituted({p: Substitute("short", 4) for p in (0, 5, 9)})
    chosen = policy(keep_verbatim="fill", keep_first_turns=1, trim_to=1.0)
    done = compressed(history, view, limits=Limits(tokens=80), policy=chosen)
    # 8 for the summary, 4 for the goal, and from question 4 on 70, of which 10 are sent as 4.
    assert (done.view.start, done.view.head) == (8, (0,))


def test_session_after_session_the_summary_is_made_once_a_stretch() -> None:
    session, messages, history = Session(), list[Message](), thread()
    for turn in range(40):
        messages += exchanges(1)
        history = thread(*messages)
        session.request(history, Limits(tokens=200), FILL)
        assert len(session.writer.asked) <= turn // 4
    assert len(session.writer.asked) == 8
    assert decide(history, session.starting_view(history, FILL), Limits(tokens=200), FILL, Writer()).steps == []


# Faults


def test_a_fold_brings_back_no_part_of_a_group_that_was_cut() -> None:
    messages = [user("a", 10), call("x", 10), user("b", 10), assistant("c", 10), result("x", tokens=10)]
    history = thread(*messages, *exchanges(3))
    cut = View(start=5, head=(2, 3))  # turn 1 is gone, its late result with it
    done = compressed(history, cut, limits=Limits(tokens=60), policy=policy(keep_recent_turns=4))
    assert 1 not in list(done.view.positions(len(history)))


def test_a_window_never_opens_on_a_late_answer_whose_question_is_folded() -> None:
    history = thread(user("a"), call("x"), user("b"), assistant("c"), result("x"), user("d"))
    done = compressed(history, limits=Limits(items=5), policy=TURNS)
    assert history.messages[next(done.view.positions(len(history)))].role == "user"


def test_a_late_result_does_not_take_the_newest_iterations_along() -> None:
    chosen = policy(keep_verbatim="fill", trim_to=0.1, keep_recent_iterations=2)
    late = [call("x"), call("y"), result("y"), result("x"), assistant("b")]
    writer = Writer()
    compressed(thread(user("a"), *late), limits=Limits(items=4), policy=chosen, writer=writer)
    assert all(asked.upto <= 2 for asked in writer.asked)


def test_fill_measures_substitutes_beside_the_summary() -> None:
    chosen = policy(keep_verbatim="fill", keep_first_turns=1, trim_to=1.0)
    history = thread(user("goal", 10), assistant("a", 10), *exchanges(4))
    view = View(substitutes={0: Substitute("short", 4)})
    done = compressed(history, view, limits=Limits(tokens=93), policy=chosen)
    assert done.view.start == 2  # 8 for the summary, 4 for the goal, 80 for the rest


def test_what_was_cut_from_beside_a_summary_is_folded_with_the_rest() -> None:
    writer, messages = Writer(), [user("the task", 10), *iterations(6)]
    first = compressed(thread(*messages), limits=Limits(tokens=100), policy=FILL, writer=writer).view
    assert first.head == (0,)
    history = thread(*messages, *exchanges(3, 20))
    cut = first.without([0], ())
    second = compressed(history, cut, limits=Limits(tokens=100), policy=FILL, writer=writer).view
    assert second.summary is not None
    assert 0 in writer.stands_for[second.summary.id]
