from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.policies.builders import assistant, call, calls, result, spoken, system, thread, user, words
from tests.policies.histories import Move, moves, torn
from transom.policies.clip import SMALLEST, clip
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.view import NOTHING, Substitute, Summary, View

PROFILE = settings.get_profile("policies")


def text(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{n}" for n in range(count))


def shown(message: Message) -> str:
    return message.payload.decode()


def clipped(history: History, target: int, view: View | None = None) -> View:
    return clip(history, view or View(), target, words, shown)


def sizes(history: History, view: View) -> dict[int, int]:
    return {p: s.tokens for p, s in view.substitutes.items()}


def long_result(identity: str, count: int) -> Message:
    """Build a result that weighs just `count` tokens."""
    return result(identity, text(count - 5), count)


def test_rule_1_tool_results_go_first_then_texts_then_the_last_user_message() -> None:
    history = thread(user(text(300)), call("c"), long_result("c", 300), assistant(text(300)), user(text(300)))
    whole = history.total_tokens
    assert set(clipped(history, whole - 100).substitutes) == {2}
    assert set(clipped(history, whole - 300).substitutes) == {0, 2, 3}
    assert set(clipped(history, whole - 700).substitutes) == {0, 2, 3, 4}


def test_rule_1_never_the_preamble_nor_a_later_system_message_nor_the_summary() -> None:
    carrier = long_result("c", 300)
    history = thread(system(text(300)), user("a"), call("c"), carrier, system(text(300)), user("b"))
    summary = Summary(b"1", shown(carrier), 300, 3)
    view = View(summary=summary, carrier=2, substitutes={2: Substitute(summary.text, 300)})
    assert clipped(history, 100, view) is view
    assert clipped(history, 100).substitutes.keys() == {2}


def test_rule_2_the_largest_go_first_down_to_the_next_smaller() -> None:
    results = [long_result(f"c{n}", size) for n, size in enumerate((200, 600, 400))]
    history = thread(user("a"), calls(*((f"c{n}", "look", "{}") for n in range(3))), *results)
    whole = history.total_tokens
    assert sizes(history, clipped(history, whole)) == {}
    one = clipped(history, whole - 150)
    assert one.substitutes.keys() == {3}
    assert one.size(history).tokens <= whole - 150
    two = clipped(history, whole - 400)
    assert two.substitutes.keys() == {3, 4}
    assert abs(two.substitutes[3].tokens - two.substitutes[4].tokens) < 40
    assert clipped(history, whole - 800).substitutes.keys() == {2, 3, 4}


def test_rule_2_no_message_gets_smaller_than_that() -> None:
    history = thread(user("a"), call("c"), long_result("c", 1_000), user("b"))
    view = clipped(history, 1)
    assert 30 < view.substitutes[2].tokens <= SMALLEST
    small = thread(user("a"), call("c"), long_result("c", SMALLEST), user("b"))
    assert clipped(small, 1).substitutes == NOTHING


def test_rule_2_a_text_of_few_characters_is_cut_as_far_as_it_goes() -> None:
    history = thread(user("a"), call("c"), replace(result("c", ""), tokens=900), user("b"))
    dense = clip(history, View(), 1, lambda text: 50 * len(text), lambda message: "∎" * 18 if message.answers else "")
    assert dense.substitutes == NOTHING  # head, line and tail would be longer than the text


def test_rule_3_a_shortened_text_is_head_line_and_tail() -> None:
    history = thread(user("a"), call("c"), long_result("c", 1_000), user("b"))
    shorter = clipped(history, 500).substitutes[2].text
    head, line, tail = shorter.split("\n")
    assert head.startswith("c: word0 word1")
    assert line.endswith("characters left out …]")
    assert tail.endswith("word993 word994")


def test_rule_4_what_is_not_text_for_the_most_part_stays() -> None:
    pictured = replace(user(text(300)), media=True)
    calling = replace(calls(("c", "write", text(300, "argument")), text=text(300)), payload=text(300).encode())
    history = thread(pictured, calling, result("c"), user("b"))
    assert clipped(history, 100) == View()


def test_rule_4_what_is_for_the_most_part_is_shortened() -> None:
    saying = replace(calls(("c", "look", "{}")), payload=text(300).encode(), tokens=314)
    history = thread(user("a"), saying, result("c"), user("b"))
    assert clipped(history, 200).substitutes[1].tokens < 200


def test_rule_5_the_same_object_if_nothing_could_go_or_needed_to() -> None:
    history = thread(user(text(50)))
    view = View()
    assert clipped(history, 1, view) is view
    assert clipped(history, 100, view) is view


def test_rule_5_a_clipped_view_is_clipped_further_from_the_whole_text() -> None:
    history = thread(user("a"), call("c"), long_result("c", 1_000), user("b"))
    once = clipped(history, 600)
    twice = clipped(history, 300, once)
    assert twice.size(history).tokens <= 300
    assert twice.substitutes[2].text.count("left out") == 1


@PROFILE
@given(moves(12), st.sets(st.integers(0, 20), max_size=3), st.integers(1, 3_000), st.integers(1, 400))
def test_whatever_the_history_a_view_is_clipped_to_strictly_less_or_not_at_all(
    script: list[Move], missing: set[int], target: int, scale: int
) -> None:
    messages = [
        spoken(m.role, text(m.tokens * scale // 10)) if m.role in ("user", "assistant") and not m.calls else m
        for m in torn(script, missing)
    ]
    history, view = thread(*messages), View()
    done = clipped(history, target, view)
    before, after = history.total_tokens, done.size(history).tokens
    assert (done is view) if before <= target else (done is view or after < before)
    if done is not view and after > target:  # everything went as far as it goes
        assert all(s.tokens <= SMALLEST for s in done.substitutes.values())
