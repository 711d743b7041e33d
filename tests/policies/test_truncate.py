import pytest

from tests.policies.builders import (
    Session,
    assistant,
    call,
    calls,
    exchanges,
    policy,
    result,
    sent,
    system,
    thread,
    truncated,
    user,
)
from transom.policies.limits import Limits
from transom.policies.view import Substitute, Summary, View

EXACT = policy(trim_to=1.0)


def test_rule_1_nothing_is_removed_while_the_limits_hold() -> None:
    history = thread(*exchanges(5, tokens=10))
    done = truncated(history, limits=Limits(100, 10), policy=EXACT)
    assert (done.view, done.trimmed, done.persist) == (View(), False, False)


def test_rule_1_nor_for_a_limit_that_protected_messages_alone_exceed() -> None:
    history = thread(*exchanges(5, tokens=10), user("long", 200))
    assert not truncated(history, limits=Limits(tokens=100), policy=EXACT).trimmed


def test_rule_1_but_the_other_limit_is_held() -> None:
    history = thread(*exchanges(5, tokens=10), user("long", 200))
    done = truncated(history, limits=Limits(100, 7), policy=EXACT)
    assert done.view == View(start=4)


def test_rule_2_what_is_broken_goes_first_and_may_be_enough() -> None:
    history = thread(user("a", 10), result("stray", tokens=10), call("x", tokens=10), user("b", 10))
    done = truncated(history, limits=Limits(tokens=20), policy=EXACT)
    assert done.view == View(omitted=frozenset({1, 2}))
    assert done.trimmed
    assert not done.persist  # a later request finds out for itself what is broken


def test_rule_2_what_is_broken_goes_with_any_cut() -> None:
    history = thread(*exchanges(3, tokens=10), user("a", 10), call("x", tokens=10), user("b", 10))
    done = truncated(history, limits=Limits(tokens=60), policy=EXACT)
    assert done.view == View(start=2, omitted=frozenset({7}))
    assert done.persist


def test_rule_2_nothing_broken_is_dropped_while_the_limits_hold() -> None:
    history = thread(user("a"), result("stray"), user("b"))
    assert not truncated(history, limits=Limits(items=3)).trimmed


def test_rule_3_groups_go_oldest_first_down_to_trim_to() -> None:
    history = thread(*exchanges(6, tokens=10))
    done = truncated(history, limits=Limits(tokens=110), policy=policy(trim_to=0.7))  # down to 77
    assert done.view == View(start=6)
    assert done.persist


@pytest.mark.parametrize(("trim_to", "start"), [(1.0, 2), (0.9, 4), (0.5, 8), (0.3, 10)])
def test_rule_3_the_share_is_of_the_limit(trim_to: float, start: int) -> None:
    history = thread(*exchanges(6, tokens=10))
    assert truncated(history, limits=Limits(tokens=100), policy=policy(trim_to=trim_to)).view.start == start


def test_rule_3_only_the_exceeded_limit_is_cut_down_to_its_share() -> None:
    history = thread(*exchanges(6, tokens=10))
    done = truncated(history, limits=Limits(tokens=110, items=12), policy=policy(trim_to=0.7))
    assert done.view.start == 6  # 60 tokens of 77; items would have asked for 8 of 12


def test_rule_3_a_turn_goes_with_its_user_message() -> None:
    history = thread(
        user("a", 10),
        call("x", tokens=10),
        result("x", tokens=10),
        assistant("b", 10),
        system("kept", 10),
        user("c", 10),
        user("d", 10),
    )
    done = truncated(history, limits=Limits(tokens=60), policy=EXACT)
    assert sent(history, done.view) == ["kept", "c", "d"]


def test_rule_3_a_run_of_user_messages_goes_one_at_a_time() -> None:
    history = thread(user("a", 10), user("b", 10), assistant("c", 10), user("d", 10))
    assert truncated(history, limits=Limits(tokens=30), policy=EXACT).view.start == 1
    assert truncated(history, limits=Limits(tokens=20), policy=EXACT).view.start == 3


def test_rule_3_turn_0_goes_whole() -> None:
    history = thread(assistant("hello", 10), assistant("what can I do", 10), user("a", 10), assistant("b", 10))
    done = truncated(history, limits=Limits(tokens=39), policy=EXACT)
    assert sent(history, done.view) == ["a", "b"]


def test_rule_3_turn_0_goes_before_all_else() -> None:
    history = thread(assistant("hello", 10), *exchanges(3, tokens=10))
    done = truncated(history, limits=Limits(tokens=50), policy=EXACT)
    assert done.view == View(start=3)


def test_rule_3_turn_0_stays_where_nobody_has_spoken() -> None:
    history = thread(assistant("a", 10), assistant("b", 10), assistant("c", 10))
    assert truncated(history, limits=Limits(tokens=20), policy=EXACT).view == View(start=1)


def test_rule_3_ordinary_system_messages_go_with_their_turn() -> None:
    history = thread(user("a", 10), system("s", 10), assistant("b", 10), user("c", 10))
    ordinary = policy(trim_to=1.0, mid_system="ordinary")
    assert truncated(history, limits=Limits(tokens=30), policy=ordinary).view == View(start=3)


def test_rule_3_of_a_pinned_turn_the_answers_go_one_at_a_time() -> None:
    pinned = policy(trim_to=1.0, keep_first_turns=1)
    history = thread(user("goal", 10), assistant("b", 10), assistant("c", 10), user("d", 10), assistant("e", 10))
    done = truncated(history, limits=Limits(tokens=40), policy=pinned)
    assert sent(history, done.view) == ["goal", "c", "d", "e"]


def test_rule_3_calls_and_results_go_together() -> None:
    history = thread(
        user("goal", 10),
        calls(("x", "f", "{}"), ("y", "f", "{}"), tokens=10),
        result("y", tokens=10),
        result("x", tokens=10),
        assistant("b", 10),
        user("c", 10),
    )
    done = truncated(history, limits=Limits(tokens=55), policy=policy(trim_to=1.0, keep_first_turns=1))
    assert sent(history, done.view) == ["goal", "b", "c"]


CURRENT = [user("a", 10), *(m for n in range(6) for m in (call(f"c{n}", 10), result(f"c{n}", f"r{n}", 10)))]


def test_rule_4_then_the_current_turn_gives_its_oldest_iterations_down_to_trim_to() -> None:
    history = thread(*CURRENT)  # 130 tokens
    done = truncated(history, limits=Limits(tokens=120), policy=policy(trim_to=0.7, keep_recent_iterations=2))
    assert done.view == View(start=7, head=(0,))  # 70 of 84


def test_rule_5_the_newest_iterations_go_only_until_the_limit_holds() -> None:
    history = thread(*CURRENT)
    done = truncated(history, limits=Limits(tokens=80), policy=policy(trim_to=0.2, keep_recent_iterations=4))
    assert done.view == View(start=7, head=(0,))  # two go for the mark, a third for the limit; the mark is 16


def test_rule_5_they_stay_where_the_limit_holds_without() -> None:
    history = thread(*CURRENT)
    done = truncated(history, limits=Limits(tokens=95), policy=policy(trim_to=0.2, keep_recent_iterations=4))
    assert done.view == View(start=5, head=(0,))


def test_rule_5_without_any_to_spare_all_go_for_the_mark() -> None:
    history = thread(*CURRENT)
    done = truncated(history, limits=Limits(tokens=95), policy=policy(trim_to=0.2, keep_recent_iterations=0))
    assert done.view == View(start=11, head=(0,))


def test_rule_6_if_only_protected_groups_remain_it_stops() -> None:
    history = thread(system("p", 10), user("a", 10), assistant("b", 10), system("s", 10), user("c", 60))
    done = truncated(history, limits=Limits(tokens=90), policy=policy(trim_to=0.1))
    assert sent(history, done.view) == ["s", "c"]
    assert done.view.size(history).tokens == 80


def test_the_summary_is_counted_and_stays_while_there_is_room_for_it() -> None:
    history = thread(*exchanges(5, tokens=10))
    view = View(4, (), Summary(b"s", "so far", 30, 4))
    done = truncated(history, view, limits=Limits(tokens=60), policy=EXACT)
    assert done.view == View(8, (), view.summary)


def test_rule_7_a_summary_that_alone_keeps_a_limit_from_being_held_stays_away_once() -> None:
    history, view = thread(*exchanges(4, tokens=10), user("long", 80)), View(4, (), Summary(b"s", "so far", 30, 4))
    done = truncated(history, view, limits=Limits(tokens=100), policy=EXACT)
    assert done.view == View(6)
    assert (done.trimmed, done.persist) == (True, False)


def test_rule_7_it_may_be_all_that_has_to_go() -> None:
    history, view = thread(*exchanges(2, tokens=10), user("long", 80)), View(4, (), Summary(b"s", "so far", 30, 4))
    assert truncated(history, view, limits=Limits(tokens=100)).view == View(4)
    assert truncated(history, view, limits=Limits(items=1)).view == View(4)


def test_rule_7_a_question_that_stays_with_its_answer_is_counted() -> None:
    history = thread(*exchanges(2, tokens=10), user("a", 40), user("b", 10), call("x", 40))
    view = View(4, (), Summary(b"s", "so far", 30, 4))
    assert truncated(history, view, limits=Limits(tokens=90), policy=EXACT).view == View(4)
    assert truncated(history, view, limits=Limits(tokens=89), policy=EXACT).view == view


def test_rule_7_it_stays_where_the_limit_is_out_of_reach_without_it_as_well() -> None:
    history, view = thread(*exchanges(4, tokens=10), user("long", 80)), View(4, (), Summary(b"s", "so far", 30, 4))
    done = truncated(history, view, limits=Limits(tokens=79), policy=EXACT)
    assert (done.view, done.trimmed) == (view, False)


def test_a_cut_goes_on_from_the_view_before() -> None:
    history = thread(*exchanges(6, tokens=10))
    done = truncated(history, View(start=4), limits=Limits(tokens=60), policy=EXACT)
    assert done.view == View(start=6)


def test_a_substitute_is_counted_as_it_is_sent() -> None:
    history = thread(user("a", 10), assistant("b", 50), user("c", 10), assistant("d", 10), user("e", 10))
    view = View().substituted({1: Substitute("short", 5)})
    assert truncated(history, view, limits=Limits(tokens=35), policy=EXACT).view == View(start=2)
    assert not truncated(history, view, limits=Limits(tokens=45), policy=EXACT).trimmed


def test_the_view_before_is_left_as_it_was() -> None:
    history, view = thread(*exchanges(6, tokens=10)), View(start=2)
    before = list(history.messages)
    truncated(history, view, limits=Limits(tokens=30))
    assert view == View(start=2)
    assert history.messages == before


def test_rule_7_the_next_view_starts_with_it_again() -> None:
    session, limits = Session(), Limits(tokens=100)
    messages = [*exchanges(3, tokens=10), user("long", 80)]
    view = View(4, (), Summary(b"s", "so far", 30, 4))
    session.remember(thread(*messages), view)
    cut = session.request(thread(*messages), limits, policy())
    assert (cut.start, cut.view, cut.persist) == (view, View(4), False)
    assert session.starting_view(thread(*messages, assistant("b"), user("c")), policy()) == view


def test_a_carried_summary_is_never_removed() -> None:
    history = thread(*exchanges(5, tokens=10))
    summary = Summary(b"s", "so far", 10, 2)
    view = View(2, (), summary, substitutes={3: Substitute("so far", 10)}, carrier=3)
    done = truncated(history, view, limits=Limits(tokens=60), policy=EXACT)
    assert done.view.summary == summary


def test_a_late_result_keeps_the_question_of_its_call() -> None:
    history = thread(user("a", 10), call("x", 10), user("b", 10), assistant("c", 10), result("x", tokens=10))
    done = truncated(history, limits=Limits(tokens=40), policy=EXACT)
    assert history.messages[next(done.view.positions(5))].role == "user"


def test_a_window_cut_before_anybody_spoke_starts_with_a_user_message_later() -> None:
    session, limits, greedy = Session(), Limits(items=2), policy(trim_to=0.5, keep_recent_iterations=0)
    messages = [assistant("a"), assistant("b"), assistant("c")]
    session.request(thread(*messages), limits, greedy)
    history = thread(*messages, user("d"))
    decided = session.request(history, limits, greedy)
    assert sent(history, decided.view)[0] == "d"
