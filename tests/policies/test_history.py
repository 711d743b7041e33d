from tests.policies.builders import assistant, call, calls, result, segment, system, thread, user
from transom.policies.history import History

MESSAGES = [user("a b", 6), calls(("x", "f", "{}"), ("y", "f", "{}"), text="so", tokens=9), result("x"), result("y")]


def test_sums_cover_any_range() -> None:
    history = History([system("s", 7)], MESSAGES)
    assert len(history) == 4
    assert (history.tokens(0), history.tokens(1, 2), history.tokens(4)) == (25, 9, 0)
    assert (history.items(0), history.items(1, 2), history.items(4)) == (6, 3, 0)
    assert (history.total_tokens, history.total_items) == (32, 7)


def test_an_empty_history_has_no_size() -> None:
    history = thread()
    assert (len(history), history.total_tokens, history.total_items) == (0, 0, 0)


def test_a_history_grown_message_by_message_is_the_one_made_at_once() -> None:
    grown = History([])
    for message in MESSAGES:
        grown.extend([message])
    made = History([], MESSAGES)
    assert grown.outline == made.outline == segment(MESSAGES)
    assert grown.messages == made.messages
    assert [grown.tokens(p) for p in range(5)] == [made.tokens(p) for p in range(5)]


def test_another_preamble_shares_the_messages() -> None:
    first = History([system("s", 7)], MESSAGES)
    second = first.with_preamble([system("t", 1), system("u", 2)])
    assert (first.preamble_tokens, first.preamble_items) == (7, 1)
    assert (second.preamble_tokens, second.preamble_items) == (3, 2)
    assert second.messages is first.messages
    second.extend([assistant("more", 5)])
    assert second.total_tokens == 33


def test_the_preamble_is_the_leading_run_of_system_messages() -> None:
    history = thread(system("a"), system("b"), call("x"), system("c"))
    assert len(history.preamble) == 2
    assert [m.role for m in history.messages] == ["assistant", "system"]
