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
from tests.policies.histories import Move, acceptable, late, moves, policies, torn
from tests.policies.oracle import Case, check_view
from transom.policies.count import Count
from transom.policies.history import History
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.trimmer import TrimResult
from transom.policies.view import View

PROFILE = settings.get_profile("policies")


def counted(history: History, keep: int, view: View | None = None, **keys: object) -> TrimResult:
    return finished(Count().trim(ask(history, view, limits=Limits(), policy=policy(keep_last=keep, **keys))))


def test_rule_1_only_the_last_iterations_stay_and_what_comes_after_them() -> None:
    history = thread(system("s"), *exchanges(5), user("now"))
    done = counted(history, 2)
    assert sent(history, done.view) == ["question 4", "answer 4", "question 5", "answer 5", "now"]
    assert done.trimmed


def test_rule_1_few_iterations_stay() -> None:
    history = thread(*exchanges(2), user("now"))
    assert counted(history, 2) == TrimResult(View(), trimmed=False, persist=False)


def test_rule_1_what_an_earlier_trimmer_removed_is_not_counted() -> None:
    history = thread(*exchanges(4), user("now"))
    assert not counted(history, 2, View(start=4)).trimmed


def test_rule_2_within_the_current_turn_its_question_stays() -> None:
    rounds = [m for n in range(6) for m in (call(f"c{n}"), result(f"c{n}"))]
    history = thread(system("sql"), *exchanges(1), user("report"), *rounds)
    assert counted(history, 3).view == View(start=9, head=(2,))


def test_rule_2_a_cut_within_an_earlier_turn_moves_on() -> None:
    history = thread(user("a"), call("x"), result("x"), assistant("b"), user("c"), assistant("d"), user("e"))
    assert counted(history, 2).view == View(start=4)


def test_rule_2_where_only_protected_messages_would_go_nothing_does() -> None:
    history = thread(user("a"), assistant("b"), assistant("c"))
    assert counted(history, 1).view == View(start=2, head=(0,))
    assert not counted(history, 1, View(start=2, head=(0,))).trimmed
    first = thread(user("a"), system("s"), assistant("b"), user("c"), assistant("d"))
    assert counted(first, 1, keep_first_turns=1).view == View(start=3, head=(0, 1))
    answered_late = thread(user("a"), call("x"), assistant("b"), result("x"))
    assert not counted(answered_late, 1).trimmed  # the group of the last message stands before the newest response


def test_rule_3_what_is_broken_goes_with_a_cut_only() -> None:
    messages = [user("a"), call("lost"), *exchanges(2), result("stray"), user("now")]
    assert not counted(thread(*messages), 2).trimmed
    assert counted(thread(*messages), 1).view == View(start=4, omitted=frozenset({6}))


def test_rule_4_the_view_is_for_this_request_only() -> None:
    assert not counted(thread(*exchanges(5)), 2).persist


@PROFILE
@given(moves(24), st.lists(st.integers(0, 5), max_size=30), st.sets(st.integers(0, 30), max_size=4), policies)
def test_whatever_the_history_the_view_is_valid(
    script: list[Move], delays: list[int], missing: set[int], chosen: Policy
) -> None:
    chosen = chosen.model_copy(update={"keep_last": 1 + len(missing)})
    for messages, is_late in (
        (acceptable(script), False),
        (late(script, delays), True),
        (torn(script, missing), False),
    ):
        history = thread(*messages)
        done = finished(Count().trim(ask(history, limits=Limits(), policy=chosen)))
        if history.messages:
            check_view(Case(history, Limits(), chosen, is_late), done.view)
