from tests.policies.builders import assistant, call, exchanges, policy, result, spoken, system, thread, user
from transom.policies.history import History
from transom.policies.iterations import cut_place, kept_iterations, question, removable
from transom.policies.protection import Protection
from transom.policies.view import Summary, View

CHAT = thread(
    assistant("hello"), assistant("?"), user("a"), user("b"), call("x"), result("x"), assistant("c"), user("d")
)


def opens(history: History, view: View | None = None) -> list[int]:
    return [i.opens for i in kept_iterations(history, view or View())]


def gone(history: History, view: View) -> list[int]:
    guard = Protection(history, policy())
    return [p for g in removable(history, view, guard) for p in g.members]


def test_rule_1_an_iteration_is_a_response_its_results_and_the_user_messages_just_before() -> None:
    found = kept_iterations(CHAT, View())
    assert [(i.opens, i.group.members) for i in found] == [(0, [0]), (1, [1]), (2, [4, 5]), (6, [6])]
    assert [i.has_question for i in found] == [False, False, True, False]


def test_rule_1_what_stands_between_a_question_and_its_answer_parts_them_not() -> None:
    assert opens(thread(user("a"), system("s"), result("stray"), assistant("b"))) == [0]


def test_rule_1_what_the_client_broke_is_no_iteration() -> None:
    history = thread(user("a"), call("lost"), user("b"), assistant("c"), result("stray"))
    assert opens(history) == [0]


def test_rule_1_an_open_group_is_one() -> None:
    assert opens(thread(user("a"), call("x"))) == [0]


def test_rule_1_iterations_that_are_not_sent_do_not_count() -> None:
    assert opens(CHAT, View(start=6, head=(3,))) == [6]


def test_rule_2_a_cut_moves_on_to_the_next_user_message() -> None:
    history = thread(*exchanges(1), call("x"), result("x"), *exchanges(1), call("y"), result("y"), assistant("z"))
    found = kept_iterations(history, View())
    assert [i.opens for i in found] == [0, 2, 4, 6, 8]
    assert [cut_place(history, i) for i in found] == [0, 4, 4, 6, 8]


def test_rule_2_greetings_are_left_for_the_first_question() -> None:
    assert [cut_place(CHAT, i) for i in kept_iterations(CHAT, View())] == [2, 2, 2, 7]


def test_rule_2_where_no_user_spoke_a_cut_falls_anywhere() -> None:
    history = thread(assistant("a"), assistant("b"))
    assert [cut_place(history, i) for i in kept_iterations(history, View())] == [0, 1]


def test_rule_3_protected_and_broken_groups_and_those_not_sent_are_not_for_a_cut() -> None:
    history = thread(*exchanges(2), system("s"), user("a"), call("x"), result("x"), call("lost"), user("b"), call("y"))
    assert gone(history, View(start=2)) == [2, 3, 5, 6, 7]


def test_rule_3_what_carries_the_summary_stays_with_its_question() -> None:
    history = thread(*exchanges(1), user("a"), user("b"), call("x"), result("x"), assistant("c"), user("d"))
    view = View(summary=Summary(b"1", "text", 5, 6), carrier=5)
    assert gone(history, view) == [0, 1, 6]


def test_the_question_of_a_group_is_the_run_of_user_messages_that_opened_its_turn() -> None:
    assert [question(CHAT, g) for g in CHAT.outline.groups] == [range(0)] * 2 + [range(2, 4)] * 4 + [range(7, 8)]
    only = thread(spoken("user", "a"))
    assert question(only, only.outline.groups[0]) == range(1)
