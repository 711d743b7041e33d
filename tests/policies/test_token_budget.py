from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import (
    ask,
    assistant,
    call,
    exchanges,
    finished,
    policy,
    result,
    sent,
    system,
    thread,
    user,
)
from tests.policies.histories import Move, acceptable, late, limits, moves, policies, torn
from tests.policies.oracle import Case, check_view, exceeded
from transom.policies.history import History
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.token_budget import TokenBudget
from transom.policies.trimmer import TrimResult
from transom.policies.view import Substitute, Summary, View

PROFILE = settings.get_profile("policies")


def budgeted(history: History, most: int, view: View | None = None, **keys: object) -> TrimResult:
    return finished(TokenBudget().trim(ask(history, view, limits=Limits(most, 1), policy=policy(**keys))))


def test_rule_1_nothing_is_removed_while_the_token_limit_holds_however_many_items_there_are() -> None:
    assert budgeted(thread(*exchanges(5)), 100) == TrimResult(View(), trimmed=False, persist=False)


def test_rule_1_nothing_is_removed_without_a_token_limit() -> None:
    history = thread(*exchanges(5))
    assert not finished(TokenBudget().trim(ask(history, limits=Limits(items=2)))).trimmed


def test_rule_1_nor_for_a_limit_that_protected_messages_exceed() -> None:
    assert not budgeted(thread(*exchanges(5), user("long", 200)), 100).trimmed


def test_rule_3_a_summary_that_alone_keeps_the_limit_from_being_held_stays_away() -> None:
    history, view = thread(*exchanges(4, tokens=10), user("long", 80)), View(4, (), Summary(b"s", "so far", 30, 4))
    assert budgeted(history, 110, view).view == View(8, (), view.summary)
    assert budgeted(history, 109, view).view == View(6)
    assert budgeted(history, 79, view).view == view


def test_rule_2_what_is_broken_goes_first_and_may_be_enough() -> None:
    history = thread(user("a", 10), result("stray", tokens=10), assistant("b", 10), user("c", 10))
    assert budgeted(history, 30).view == View(omitted=frozenset({1}))


def test_rule_3_the_oldest_iterations_go_until_the_limit_itself_holds() -> None:
    history = thread(system("s", 5), *exchanges(5, tokens=10), user("now", 5))
    done = budgeted(history, 70, trim_to=0.1)
    assert sent(history, done.view)[0] == "question 3"
    assert done.view.size(history).tokens == 70


def test_rule_3_a_call_goes_with_its_result_and_an_answer_with_its_question() -> None:
    history = thread(
        system("s", 10),
        *exchanges(1, tokens=10),
        user("pens?", 10),
        call("x", tokens=600),
        result("x", tokens=10),
        assistant("412", 10),
        user("red?", 10),
    )
    assert budgeted(history, 120).view == View(start=6)


def test_rule_3_within_the_current_turn_the_oldest_rounds_go() -> None:
    history = thread(
        user("compare", 10), call("x", 10), result("x", tokens=500), call("y", 10), result("y", tokens=500)
    )
    assert budgeted(history, 600).view == View(start=3, head=(0,))


def test_rule_3_what_is_cleared_counts_as_it_is_sent() -> None:
    history = thread(user("a", 10), call("x", 10), result("x", tokens=500), *exchanges(2, tokens=10))
    view = View(substitutes={2: Substitute("[cleared]", 20)})
    assert budgeted(history, 79, view).view == View(start=3)


def test_rule_3_in_the_end_all_goes_but_what_is_protected() -> None:
    history = thread(assistant("hello", 10), *exchanges(3, tokens=10), user("now", 10))
    assert budgeted(history, 10).view == View(start=7)


def test_rule_4_the_view_is_for_this_request_only() -> None:
    done = budgeted(thread(*exchanges(5, tokens=10)), 40)
    assert (done.trimmed, done.persist) == (True, False)


@PROFILE
@given(moves(24), st.lists(st.integers(0, 5), max_size=30), st.sets(st.integers(0, 30), max_size=4), policies, limits)
def test_whatever_the_history_the_view_is_valid_and_small_enough(
    script: list[Move], delays: list[int], missing: set[int], chosen: Policy, most: Limits
) -> None:
    for messages, is_late in (
        (acceptable(script), False),
        (late(script, delays), True),
        (torn(script, missing), False),
    ):
        history = thread(*messages)
        if not history.messages:
            continue
        done = finished(TokenBudget().trim(ask(history, limits=most, policy=chosen)))
        case = Case(history, Limits(most.tokens), chosen, is_late)
        check_view(case, done.view)
        if not exceeded(case, View(), case.reading.protected):
            assert not exceeded(case, done.view, done.view.positions(len(history)))
