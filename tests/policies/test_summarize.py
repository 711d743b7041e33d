import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import (
    Asked,
    Writer,
    ask,
    assistant,
    call,
    calls,
    exchanges,
    finished,
    policy,
    result,
    system,
    thread,
    user,
)
from tests.policies.clients import body, prefixes
from tests.policies.histories import Move, acceptable, late, moves, policies, torn
from tests.policies.oracle import Case, Reading, must
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.protection import Protection
from transom.policies.render import LABEL
from transom.policies.summarize import FOLDED, Summarize
from transom.policies.trimmer import TrimResult
from transom.policies.view import Summary, View

PROFILE = settings.get_profile("policies")


def folded(
    history: History, most: int, keep: int, view: View | None = None, *, writer: Writer | None = None, **keys: object
) -> TrimResult:
    chosen = policy(keep_last=keep, **keys)
    return finished(Summarize().trim(ask(history, view, limits=Limits(most, 1), policy=chosen, writer=writer)))


def shown(history: History, view: View) -> list[str]:
    """Return what is sent after the preamble, as text."""
    return [
        view.substitutes[p].text if p in view.substitutes else history.messages[p].payload.decode()
        for p in view.positions(len(history))
    ]


def rounds(first: int, end: int, tokens: int = 10) -> list[Message]:
    return [m for n in range(first, end) for m in (call(f"c{n}", tokens), result(f"c{n}", f"found {n}", tokens))]


CALL = " (('{}', 'look', '{{}}'),)"  # how the tests' messages show a call


def test_rule_1_nothing_is_folded_while_the_token_limit_holds_however_many_items_there_are() -> None:
    writer = Writer()
    assert not folded(thread(*exchanges(9)), 180, 1, writer=writer).trimmed
    assert not writer.asked


def test_rule_1_nor_for_a_limit_that_protected_messages_exceed() -> None:
    assert not folded(thread(*exchanges(9), user("long", 500)), 180, 1).trimmed


def test_rule_1_nor_without_a_token_limit() -> None:
    request = ask(thread(*exchanges(9)), limits=Limits(items=2), policy=policy(keep_last=1))
    assert not finished(Summarize().trim(request)).trimmed


def test_rule_1_the_newest_iterations_stay() -> None:
    writer = Writer()
    assert not folded(thread(*exchanges(5)), 60, 5, writer=writer).trimmed
    assert not writer.asked
    history = thread(*exchanges(5), user("now"))
    view = folded(history, 90, 3).view
    assert shown(history, view)[2:] == [
        "question 3",
        "answer 3",
        "question 4",
        "answer 4",
        "question 5",
        "answer 5",
        "now",
    ]


def test_rule_2_the_first_result_of_the_earliest_iteration_carries_the_summary() -> None:
    history = thread(
        system("bot", 5),
        user("Oslo?", 5),
        calls(("n1", "look", "{}"), ("n2", "look", "{}"), tokens=10),
        result("n2", "rain", 200),
        result("n1", "4 degrees", 200),
        assistant("4, rain", 5),
        user("Rome?", 5),
        call("n3", 10),
        result("n3", "18C", 10),
        assistant("18, sunny", 5),
        user("compare", 5),
    )
    view = folded(history, 300, 3).view
    assert shown(history, view) == [
        "Oslo?",
        " (('n1', 'look', '{}'), ('n2', 'look', '{}'))",
        f"{LABEL} 1",
        FOLDED,
        "4, rain",
        "Rome?",
        CALL.format("n3"),
        "n3: 18C",
        "18, sunny",
        "compare",
    ]
    assert view.carrier == 2
    assert view.summary_message is None


def test_rule_2_an_iteration_without_tools_carries_it_as_its_answer() -> None:
    history = thread(*exchanges(5, tokens=50), user("now", 5))
    done = folded(history, 200, 2)
    assert shown(history, done.view) == [
        "question 1",
        f"{LABEL} 1",
        "question 4",
        "answer 4",
        "question 5",
        "answer 5",
        "now",
    ]
    assert done.persist


def test_rule_2_what_answers_nobody_carries_nothing() -> None:
    history = thread(assistant("hello", 100), *exchanges(3, tokens=50), user("now", 5))
    assert shown(history, folded(history, 300, 2).view)[:3] == ["question 1", f"{LABEL} 1", "question 2"]
    assert not folded(history, 300, 3).trimmed  # only the greeting is old


def test_rule_2_unless_no_user_ever_spoke() -> None:
    history = thread(assistant("a", 100), assistant("b", 100), assistant("c", 100))
    assert shown(history, folded(history, 200, 1).view) == [f"{LABEL} 1", "c"]


def test_rule_2_all_user_messages_that_opened_its_turn_stay() -> None:
    history = thread(user("a", 10), user("b", 10), *rounds(0, 3, 50), *exchanges(2, tokens=50), user("now", 5))
    assert shown(history, folded(history, 300, 2).view)[:3] == ["a", "b", CALL.format("c0")]


def test_rule_3_the_span_is_all_that_is_no_longer_shown() -> None:
    history = thread(
        user("a", 10), *rounds(0, 2, 50), user("pinned", 10), system("s", 5), *exchanges(2, tokens=50), user("now", 5)
    )
    writer = Writer()
    view = folded(history, 250, 1, writer=writer, keep_first_turns=2).view
    assert writer.asked == [Asked((2, 3, 4, 7, 8), 9, None)]
    assert shown(history, view) == [
        "a",
        CALL.format("c0"),
        f"{LABEL} 1",
        "pinned",
        "s",
        "question 2",
        "answer 2",
        "now",
    ]


def test_rule_3_what_an_earlier_cut_removed_is_folded_as_well() -> None:
    history = thread(*exchanges(6, tokens=50), user("now", 5))
    writer = Writer()
    view = folded(history, 300, 2, View(start=4), writer=writer).view
    assert writer.asked[0].span == (0, 1, 2, 3, 5, 6, 7)
    assert shown(history, view)[:2] == ["question 3", f"{LABEL} 1"]


def test_rule_3_what_the_client_broke_goes() -> None:
    history = thread(
        *exchanges(2, tokens=50), call("lost", 50), *exchanges(2, tokens=50), result("stray"), user("now", 5)
    )
    view = folded(history, 200, 1).view
    assert shown(history, view) == ["question 1", f"{LABEL} 1", "question 2", "answer 2", "now"]
    assert view.carrier == 1


def test_rule_4_within_the_carriers_turn_the_cut_stays_where_it_is() -> None:
    history = thread(user("a", 10), *rounds(0, 6, 50), user("now", 5))
    view = folded(history, 400, 2).view
    assert shown(history, view) == [
        "a",
        CALL.format("c0"),
        f"{LABEL} 1",
        CALL.format("c4"),
        "c4: found 4",
        CALL.format("c5"),
        "c5: found 5",
        "now",
    ]


def test_rule_4_and_within_the_current_turn() -> None:
    history = thread(*exchanges(1, tokens=50), user("now", 10), *rounds(0, 6, 50))
    assert shown(history, folded(history, 400, 1).view) == [
        "question 1",
        f"{LABEL} 1",
        "now",
        CALL.format("c5"),
        "c5: found 5",
    ]


def test_rule_4_elsewhere_it_moves_on_to_the_next_user_message() -> None:
    history = thread(
        *exchanges(1, tokens=50), user("a", 10), *rounds(0, 4, 50), user("b", 10), *rounds(4, 6, 50), user("now", 5)
    )
    assert shown(history, folded(history, 500, 3).view)[:4] == ["question 1", f"{LABEL} 1", "b", CALL.format("c4")]


def test_rule_5_where_no_iteration_follows_the_last_old_one_carries_it_behind_its_own_question() -> None:
    history = thread(*exchanges(2, tokens=50), user("a", 10), *rounds(0, 4, 50), user("now", 5))
    view = folded(history, 400, 2).view
    assert shown(history, view) == [
        "a",
        CALL.format("c1"),
        f"{LABEL} 1",
        CALL.format("c2"),
        "c2: found 2",
        CALL.format("c3"),
        "c3: found 3",
        "now",
    ]


def test_rule_5_but_a_question_that_was_cut_away_is_not_brought_back() -> None:
    history = thread(*exchanges(2, tokens=50), user("a", 10), *rounds(0, 4, 50), user("now", 5))
    without = View(start=9, head=(0, 1))  # somebody's own trimmer: two rounds of the last turn, without their question
    assert shown(history, folded(history, 200, 2, without).view) == ["question 1", f"{LABEL} 1", "now"]


def test_rule_6_a_later_fold_takes_the_summary_along_into_the_same_carrier() -> None:
    writer = Writer()
    history = thread(*exchanges(5, tokens=50), user("now", 5))
    first = folded(history, 200, 2, writer=writer).view
    grown = thread(*history.messages, assistant("x", 50), *exchanges(2, tokens=50), user("now", 5))
    second = folded(grown, 200, 2, first, writer=writer).view
    assert shown(grown, second)[:3] == ["question 1", f"{LABEL} 2", "question 1"]
    assert writer.asked[1] == Asked((6, 7, 8, 9, 10, 11), 12, first.summary)
    assert second.carrier == first.carrier


def test_rule_6_or_into_another() -> None:
    writer = Writer()
    history = thread(*exchanges(4, tokens=50), user("a", 10))
    first = folded(history, 200, 1, writer=writer).view
    grown = thread(*history.messages, *rounds(0, 4, 50), user("now", 5))
    second = folded(grown, 200, 2, first, writer=writer).view
    assert shown(grown, second)[:3] == ["a", CALL.format("c1"), f"{LABEL} 2"]
    # The question and the answers of the first fold, its carrier's own included, are in the summary already.
    assert writer.asked[1].span == (0, 6, 7, 9, 10, 12)
    assert list(second.substitutes) == [second.carrier]


def test_rule_6_a_summary_that_is_a_message_becomes_the_carriers() -> None:
    history = thread(*exchanges(6, tokens=50), user("now", 5))
    view = View(4, summary=Summary(b"0", f"{LABEL} 0", 10, 4))
    writer = Writer(stands_for={b"0": frozenset(range(4))})
    after = folded(history, 300, 2, view, writer=writer).view
    assert shown(history, after)[:2] == ["question 3", f"{LABEL} 1"]
    assert after.summary_message is None
    assert writer.asked == [Asked((5, 6, 7), 8, view.summary)]


def test_rule_6_without_anything_new_nothing_is_folded() -> None:
    writer = Writer()
    history = thread(*exchanges(3, tokens=50), user("now", 5))
    view = folded(history, 200, 2, writer=writer).view
    longer = thread(*history.messages[:-1], user("now", 90))
    assert not folded(longer, 200, 2, view, writer=writer).trimmed
    assert len(writer.asked) == 1


def test_rule_7_small_folds_are_made_where_they_leave_room() -> None:
    history = thread(*exchanges(2, tokens=40), *exchanges(2, tokens=5), user("now", 5))
    large = Writer(allowance=60)
    assert not folded(history, 180, 3, writer=large).trimmed  # everything fits
    assert not folded(history, 170, 3, writer=large).trimmed  # 40 taken, under a quarter; 130 + 60 left
    assert folded(history, 150, 3, writer=large).trimmed  # 40 are more than a quarter
    roomy = thread(user("a", 5), assistant("b", 30), user("c", 5), assistant("d", 5), user("now", 180))
    assert not folded(roomy, 210, 1, writer=large).trimmed
    loose = thread(user("a", 5), assistant("b", 90), call("lost", 200), user("c", 5), assistant("d", 5), user("now", 5))
    assert folded(loose, 300, 1, writer=Writer(allowance=200)).trimmed


@pytest.mark.parametrize("sizes", [(None,), (999,)])
def test_a_summary_that_fails_leaves_the_view_as_it_was(sizes: tuple[int | None, ...]) -> None:
    done = folded(thread(*exchanges(5, tokens=50)), 200, 1, writer=Writer(sizes))
    assert done == TrimResult(View(), trimmed=False, persist=False)


def check_folded(case: Case, view: View, writer: Writer) -> None:
    """Check what the contract says of a view whose summary a message carries."""
    reading, messages = case.reading, case.history.messages
    kept = list(view.positions(len(messages)))
    present = set(kept)
    must(kept == sorted(present), "order is kept", kept)
    must(len(messages) - 1 in present, "the last message is there", kept)
    must(reading.protected - reading.broken <= present, "what is protected is there", kept)
    must(not reading.protected & set(view.substitutes), "in its own words", view)
    must((view.carrier is None) == (view.summary is None), "a summary has a carrier", view)
    must(sum(LABEL in s.text for s in view.substitutes.values()) == bool(view.summary), "one at most", view)
    for place in present if view.summary else ():
        group = reading.group(reading.leader[place])
        must(set(group) <= present, "a call and its results stay together", group, kept)
        must(place not in reading.broken or len(messages) - 1 in group, "what is broken goes", place)
    spoken_of = [p for p in kept if not messages[p].is_system]
    if view.summary and reading.users and not case.late:
        must(messages[spoken_of[0]].role == "user", "a window starts with a user message", kept)
        asked = {reading.turn[p] for p in kept if messages[p].role == "user"}
        for place in kept:
            free = place not in reading.protected
            must(not free or reading.turn[place] in asked, "an answer goes with its question", place)
    if view.summary:
        own = present - set(view.substitutes)
        later = {p for p in range(view.summary.upto, len(messages)) if not reading.turn[p]}  # a late result of turn 0
        forgotten = set(range(len(messages))) - writer.stands_for[view.summary.id] - own - reading.broken - later
        must(not forgotten, "nothing is forgotten", sorted(forgotten), view)
    tokens = case.history.preamble_tokens
    tokens += sum(view.substitutes[p].tokens if p in view.substitutes else messages[p].tokens for p in kept)
    must(view.size(case.history).tokens == tokens, "a view knows its size", view)


def newest_stay(reading: Reading, view: View, keep: int) -> bool:
    """Tell whether the newest iterations of the current turn are sent in their own words."""
    newest = reading.newest(keep)
    return all(view.keeps(p) and p not in view.substitutes for p in newest - reading.broken)


def played(script: list[Move], delays: list[int], missing: set[int]) -> list[tuple[list[Message], bool]]:
    """Play a script well, with late results, and with messages missing; and tell whether results are late."""
    return [(acceptable(script), False), (late(script, delays), True), (torn(script, missing), False)]


@PROFILE
@given(
    moves(24, least=6),
    st.lists(st.integers(1, 60), max_size=4),
    st.lists(st.integers(0, 5), max_size=30),
    st.sets(st.integers(0, 30), max_size=4),
    st.floats(0.2, 1),
    st.integers(1, 4),
    policies,
)
def test_whatever_a_client_does_views_are_valid(
    script: list[Move],
    ends: list[int],
    delays: list[int],
    missing: set[int],
    share: float,
    keep: int,
    chosen: Policy,
) -> None:
    chosen = chosen.model_copy(update={"keep_last": keep})
    for messages, is_late in played(script, delays, missing):
        view, writer = View(), Writer()
        for beginning in prefixes(body(messages), ends):
            case = Case(thread(*beginning), Limits(int(view.size(thread(*beginning)).tokens * share)), chosen, is_late)
            view = view.without((), Protection(case.history, chosen).broken()) if view.start else view
            if case.reading.protected & set(view.substitutes):
                continue  # a thread that ends where a summary stands: see the proxy's choice of where to start from
            done = finished(Summarize().trim(ask(case.history, view, limits=case.limits, policy=chosen, writer=writer)))
            assert done.trimmed == (done.view.summary is not view.summary)
            if done.trimmed:
                check_folded(case, done.view, writer)
                assert is_late or newest_stay(case.reading, done.view, keep)
                view = done.view.baseline()
