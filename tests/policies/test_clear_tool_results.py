import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import (
    ask,
    assistant,
    call,
    calls,
    finished,
    function_call,
    function_result,
    policy,
    result,
    thread,
    user,
    words,
)
from tests.policies.histories import Move, late, moves, torn
from tests.policies.oracle import Reading
from transom.policies.clear_tool_results import IDENTIFIERS_TOKENS, ClearToolResults
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.trimmer import TrimResult
from transom.policies.view import Substitute, View

PROFILE = settings.get_profile("policies")


def cleared(history: History, most: int, view: View | None = None, **keys: object) -> TrimResult:
    chosen = policy(**{"keep_tool_results": 0, **keys})
    return finished(ClearToolResults().trim(ask(history, view, limits=Limits(most, 1), policy=chosen)))


def rounds(count: int, tokens: int = 100, tool: str = "look") -> list[Message]:
    """Build rounds of one call each, the results of which weigh `tokens`."""
    made = [(calls((f"c{n}", tool, "{}"), tokens=10), result(f"c{n}", tokens=tokens)) for n in range(count)]
    return [message for pair in made for message in pair]


def test_rule_1_nothing_is_cleared_while_the_token_limit_holds() -> None:
    history = thread(user("a", 10), *rounds(4), assistant("b", 10))
    assert cleared(history, 460) == TrimResult(View(), trimmed=False, persist=False)


def test_rule_1_nor_without_a_token_limit() -> None:
    history = thread(user("a", 10), *rounds(4), assistant("b", 10))
    assert not finished(ClearToolResults().trim(ask(history, limits=Limits(items=2)))).trimmed


def test_rule_1_nor_for_a_limit_that_protected_messages_exceed() -> None:
    assert not cleared(thread(user("a", 10), *rounds(4), user("long", 500)), 400).trimmed


def test_rule_2_the_oldest_are_cleared_first_down_to_trim_to() -> None:
    history = thread(user("a", 10), *rounds(6), assistant("b", 10))  # 680
    view = cleared(history, 600, trim_to=0.8).view
    assert sorted(view.substitutes) == [2, 4, 6]
    assert view.size(history).tokens <= 480 < view.size(history).tokens + 100


def test_rule_3_at_least_so_much_in_one_go() -> None:
    history = thread(user("a", 10), *rounds(6), assistant("b", 10))
    assert sorted(cleared(history, 600, trim_to=1.0).view.substitutes) == [2]
    assert sorted(cleared(history, 600, trim_to=1.0, clear_at_least=200).view.substitutes) == [2, 4, 6]


def test_rule_3_or_nothing() -> None:
    history = thread(user("a", 10), *rounds(6), assistant("b", 10))
    assert not cleared(history, 600, clear_at_least=600).trimmed


def test_rule_4_the_newest_results_stay() -> None:
    history = thread(user("a", 10), *rounds(4), assistant("b", 10))
    assert sorted(cleared(history, 300, keep_tool_results=3).view.substitutes) == [2]
    assert not cleared(history, 300, keep_tool_results=4).trimmed


def test_rule_4_excluded_tools_stay() -> None:
    history = thread(user("a", 10), *rounds(2, tool="plan"), *rounds(2), assistant("b", 10))
    assert sorted(cleared(history, 200, exclude_tools=["plan"]).view.substitutes) == [6, 8]


def test_rule_4_each_result_of_a_batch_is_told_by_its_own_tool() -> None:
    batch = [calls(("a", "plan", "{}"), ("b", "look", "{}"), tokens=10), result("b", tokens=90), result("a", tokens=90)]
    history = thread(user("a", 10), *batch, assistant("b", 10))
    assert sorted(cleared(history, 120, exclude_tools=["plan"]).view.substitutes) == [2]


@pytest.mark.parametrize("end", [[], [call("open")]])
def test_rule_4_results_that_the_model_has_not_read_stay(end: list[Message]) -> None:
    history = thread(user("a", 10), *rounds(2), *end)
    assert sorted(cleared(history, 200).view.substitutes) == ([2, 4] if end else [2])


def test_rule_4_results_of_an_open_group_stay() -> None:
    batch = [calls(("a", "look", "{}"), ("b", "look", "{}"), tokens=10), result("b", tokens=90)]
    assert not cleared(thread(user("a", 10), *batch), 100).trimmed


def test_rule_4_what_the_client_broke_stays() -> None:
    batch = [calls(("a", "look", "{}"), ("b", "look", "{}"), tokens=10), result("b", tokens=900)]
    history = thread(user("a", 10), result("stray", tokens=900), *batch, user("b", 10))
    assert not cleared(history, 100).trimmed


def test_rule_4_results_that_are_not_sent_are_no_newest_ones() -> None:
    history = thread(user("a", 10), *rounds(3), user("b", 10), *rounds(1), assistant("c", 10))
    assert sorted(cleared(history, 100, View(start=7), keep_tool_results=1).view.substitutes) == []
    assert sorted(cleared(history, 100, View(start=7)).view.substitutes) == [9]


def test_rule_5_the_placeholder_names_the_tool_and_the_size() -> None:
    history = thread(user("a", 10), *rounds(1, tokens=18_204, tool="read_file"), user("b", 10))
    placeholder = cleared(history, 10_000).view.substitutes[2]
    assert placeholder == Substitute("[cleared: read_file, 18,204 tokens; call it again if needed]", 4 + 9)


def test_rule_5_it_lists_identifiers_of_the_result() -> None:
    text = "user mia_li_3668 booked HAT001 on 2024-05-20 for 300 dollars " + "and so on " * 30
    history = thread(user("a", 10), calls(("c", "find", "{}")), result("c", text), user("b", 10))
    found = cleared(history, 100).view.substitutes[2].text
    assert found.endswith("; call it again if needed]\nIt held: mia_li_3668, HAT001, 2024-05-20, 300")


def test_rule_5_in_few_tokens() -> None:
    text = " ".join(f"HAT{n:03}" for n in range(2_000))
    history = thread(user("a", 10), calls(("c", "find", "{}")), result("c", text), user("b", 10))
    listed = cleared(history, 1_000).view.substitutes[2].text.split("\n")[1]
    assert words(listed) == IDENTIFIERS_TOKENS
    short = thread(user("a", 10), calls(("c", "find", "{}")), result("c", text[:280]), user("b", 10))
    assert "\n" in cleared(short, 30).view.substitutes[2].text
    assert words(cleared(short, 30).view.substitutes[2].text.split("\n")[1]) <= 5


def test_rule_5_a_hostile_name_stays_short_and_on_one_line() -> None:
    history = thread(user("a", 10), *rounds(1, tool="evil\n" * 50), user("b", 10))
    assert cleared(history, 50).view.substitutes[2].text.startswith("[cleared: evil evil")
    assert len(cleared(history, 50).view.substitutes[2].text) < 130


def test_rule_5_legacy_functions_have_names() -> None:
    history = thread(user("a", 10), function_call("f"), function_result("f", tokens=90), user("b", 10))
    assert cleared(history, 50).view.substitutes[2].text.startswith("[cleared: f, 90 tokens;")


def test_rule_6_a_result_that_would_not_get_smaller_stays() -> None:
    history = thread(user("a", 10), *rounds(3, tokens=20), *rounds(1, tokens=200), user("b", 10))
    assert sorted(cleared(history, 100).view.substitutes) == [8]
    wordy = thread(user("a", 10), *rounds(1, tokens=21, tool=" ".join("abcdefgh")), user("b", 10))
    assert not cleared(wordy, 40).trimmed


def test_rule_7_what_is_cleared_stays_cleared() -> None:
    history = thread(user("a", 10), *rounds(6), assistant("b", 10))
    first = cleared(history, 600, trim_to=0.9)
    second = cleared(history, 400, first.view, trim_to=0.9)
    assert first.persist
    assert second.view.substitutes.items() > first.view.substitutes.items()


@PROFILE
@given(
    moves(24, kinds=("user", "assistant", "tools", "tools")),
    st.lists(st.integers(0, 5), max_size=30),
    st.sets(st.integers(0, 30), max_size=4),
    st.integers(20, 400),
    st.fixed_dictionaries({"keep_tool_results": st.integers(0, 4), "clear_at_least": st.integers(0, 60)}),
)
def test_whatever_the_history_only_old_results_change_and_only_to_less(
    script: list[Move], delays: list[int], missing: set[int], most: int, keys: dict[str, int]
) -> None:
    for messages in (late(script, delays), torn(script, missing)):
        history, chosen = thread(*messages), policy(**keys)
        done = finished(ClearToolResults().trim(ask(history, limits=Limits(most), policy=chosen)))
        assert list(done.view.positions(len(history))) == list(range(len(history)))
        reading = Reading(history.messages, chosen)
        old = [p for p, m in enumerate(history.messages) if m.answers is not None and p not in reading.orphans]
        free = set(old[: len(old) - chosen.keep_tool_results]) - reading.protected - reading.broken
        assert set(done.view.substitutes) <= free
        assert all(s.tokens < history.messages[p].tokens for p, s in done.view.substitutes.items())
        saved = history.total_tokens - done.view.size(history).tokens
        assert done.trimmed == (saved > 0)
        assert not done.trimmed or saved >= chosen.clear_at_least


AGENT = ("clear_tool_results", "compress", "truncate")


@pytest.mark.parametrize(("tokens", "clears"), [(40, False), (100, True)])
def test_rule_3_where_another_trimmer_follows_a_go_leads_most_of_the_way_down(tokens: int, clears: bool) -> None:
    said = assistant("b", 640 - 6 * tokens)  # the results are more or less of what there is
    history = thread(user("a", 10), *rounds(6, tokens), said, user("c", 10))
    assert history.total_tokens == 720
    done = cleared(history, 700, trim_to=0.5, strategy=AGENT)
    assert done.trimmed is clears
    assert cleared(history, 700, trim_to=0.5, strategy=(*AGENT[:1],)).trimmed
    assert cleared(history, 700, trim_to=0.5, strategy=(*AGENT[1:], "clear_tool_results")).trimmed


def test_rule_3_recall_is_no_trimmer_that_follows() -> None:
    history = thread(user("a", 10), *rounds(6, 40), assistant("b", 400), user("c", 10))
    assert cleared(history, 700, trim_to=0.5, strategy=("clear_tool_results", "recall")).trimmed
