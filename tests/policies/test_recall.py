import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies import builders
from tests.policies.builders import assistant, calls, finished, policy, result, thread, user, words
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.passages import Passages
from transom.policies.recall import FRAME, MOST_SEARCHED, Recall
from transom.policies.trimmer import TrimRequest, TrimResult
from transom.policies.view import Recalled, Substitute, View

PROFILE = settings.get_profile("policies")
TOPICS = ("rain", "food", "work", "music", "cars", "dogs", "films", "books")


def small_talk(count: int = 8) -> list[Message]:
    return [
        message
        for topic in TOPICS[:count]
        for message in (user(f"let us talk about {topic} now"), assistant(f"sure, {topic} is nice to talk about"))
    ]


def asked(history: History, view: View, *, limits: Limits | None = None, **keys: object) -> TrimRequest:
    request = builders.ask(history, view, limits=limits or Limits(), policy=policy(**keys))
    # A result's text, as the proxy reads it, is without the id of its call; a call's is empty.
    return replace(
        request, content=lambda m: "" if m.calls else m.payload.decode().partition(": ")[2] or m.payload.decode()
    )


def recalled(history: History, view: View, *, limits: Limits | None = None, **keys: object) -> TrimResult:
    return finished(Recall().trim(asked(history, view, limits=limits, **keys)))


def text(history: History, view: View, **keys: Any) -> str:
    found = recalled(history, view, **keys).view.recalled
    return found.text if found else ""


def quotes(written: str) -> list[str]:
    """Return what is quoted, each with its heading."""
    body = written.partition("\n===== BEGIN")[2].partition("\n")[2].rpartition("\n===== END")[0]
    return [part.strip() for part in re.split(r"\n(?=\[message \d+ of \d+)", body) if part]


CHAT = thread(
    *small_talk(3),
    user("my locker code is QR37900, remember it"),
    assistant("noted"),
    *small_talk(),
    user("locker code?"),
)
CUT = View(start=12)


def test_rule_1_nothing_is_recalled_where_everything_is_sent() -> None:
    assert recalled(CHAT, View()) == TrimResult(View(), trimmed=False, persist=False)


def test_rule_1_nor_where_no_user_spoke() -> None:
    assert not recalled(thread(*(assistant(f"the code is QR3790{n}") for n in range(5))), View(start=2)).trimmed


def test_rule_1_only_what_stands_before_the_last_user_message() -> None:
    turn = [calls(("c", "find", "{}")), result("c", "the locker code is QR37900 now"), assistant("there it is")]
    history = thread(*small_talk(), user("locker code?"), *turn)
    assert not recalled(history, View(start=19, head=(16,))).trimmed


def test_rule_1_within_a_turn_the_same_cut_gives_the_same_message() -> None:
    grown = thread(*CHAT.messages, calls(("c", "find", "{}")), result("c"))
    assert text(grown, CUT) == text(CHAT, CUT) != ""


def test_rule_2_what_is_cut_is_found() -> None:
    assert quotes(text(CHAT, CUT)) == ["[message 7 of 25, user]\nmy locker code is QR37900, remember it"]


def test_rule_2_what_is_sent_is_not() -> None:
    assert not recalled(CHAT, View(start=6)).trimmed
    assert not recalled(CHAT, View(start=12, head=(6,))).trimmed


def test_rule_2_what_another_text_stands_for_is_found() -> None:
    view = View(substitutes={6: Substitute("[cleared]", 5)})
    assert len(quotes(text(CHAT, view))) == 1


def test_rule_2_arguments_of_calls_are_found() -> None:
    made = [calls(("c", "book_flight", '{"flight": "HAT001", "seat": "12A"}')), result("c", "booked")]
    history = thread(user("book it"), *made, *small_talk(), user("which seat did you book on HAT001?"))
    assert quotes(text(history, View(start=3))) == [
        '[message 2 of 20, assistant]\nbook_flight({"flight": "HAT001", "seat": "12A"})'
    ]


def test_rule_2_of_equal_messages_the_newest_counts() -> None:
    fact = user("my locker code is QR37900, remember it")
    history = thread(
        fact, assistant("noted"), *small_talk(2), fact, assistant("I know"), *small_talk(), user("locker code?")
    )
    assert [q.split("\n")[0] for q in quotes(text(history, View(start=10)))] == ["[message 7 of 25, user]"]


def test_rule_2_of_a_very_long_thread_the_newest_part_counts() -> None:
    passages = Passages()
    huge = [user(f"{n} " + "filler " * 8_000) for n in range(MOST_SEARCHED // 60_000)]
    old, new = (user(f"my locker code is {code}, remember it") for code in ("QR37900", "AB12345"))
    request = asked(thread(old, *huge, *huge, new, *small_talk(), user("locker code?")), View(start=2 * len(huge) + 2))
    found = finished(Recall(passages).trim(request)).view.recalled
    assert found is not None
    assert "AB12345" in found.text
    assert "QR37900" in found.text
    distinct = [user(f"{n}. " + "filler " * 8_000) for n in range(MOST_SEARCHED // 60_000)]
    request = asked(thread(old, *huge, *distinct, new, user("locker code?")), View(start=2 * len(huge) + 2))
    found = finished(Recall(passages).trim(request)).view.recalled
    assert found is not None
    assert "QR37900" not in found.text


@pytest.mark.parametrize("query", ["", "…", "thanks!", "what is the capital of Burkina Faso today?"])
def test_rule_3_nothing_is_brought_back_if_nothing_is_good_enough(query: str) -> None:
    history = thread(*CHAT.messages[:-1], user(query))
    assert not recalled(history, CUT).trimmed


def test_rule_4_quotes_stand_in_thread_order_so_that_corrections_come_last() -> None:
    facts = [
        user("my locker code is QR37900 for now"),
        *small_talk(2),
        user("correction, my locker code is AB12345 for now"),
    ]
    history = thread(*facts, *small_talk(), user("what is my locker code?"))
    assert [q.split("\n")[1] for q in quotes(text(history, View(start=6)))] == [
        "my locker code is QR37900 for now",
        "correction, my locker code is AB12345 for now",
    ]


def test_rule_4_what_is_too_long_is_elided_around_what_matched() -> None:
    long = user("so " * 150 + "my locker code is QR37900 " + "and on " * 150)
    history = thread(long, *small_talk(), user("what is my locker code?"))
    (quote,) = quotes(text(history, View(start=1), recall_tokens=120))
    assert "my locker code is QR37900" in quote
    assert quote.startswith("[message 1 of 18, user]\n… ")
    assert quote.endswith(" …")
    start = user("my locker code is QR37900 " + "and on " * 150)
    (quote,) = quotes(
        text(thread(start, *small_talk(), user("what is my locker code?")), View(start=1), recall_tokens=120)
    )
    assert quote.startswith("[message 1 of 18, user]\nmy locker")


def test_rule_4_a_question_brings_its_answer_along() -> None:
    exchange = [user("in which year was the locker bought?"), assistant("That happened in 1987.")]
    history = thread(*exchange, *small_talk(), user("the year the locker was bought, again?"))
    assert [q.split("\n")[1] for q in quotes(text(history, View(start=2)))] == [
        "in which year was the locker bought?",
        "That happened in 1987.",
    ]


@pytest.mark.parametrize(
    ("answer", "head"),
    [
        (assistant("That happened in 1987."), (1,)),  # it is sent
        (calls(("c", "find", "{}")), ()),  # no plain answer
        (user("hello?"), ()),
    ],
)
def test_rule_4_but_no_other_message(answer: Message, head: tuple[int, ...]) -> None:
    history = thread(
        user("in which year was the locker bought?"), answer, *small_talk(), user("the year the locker was bought?")
    )
    assert len(quotes(text(history, View(start=2, head=head)))) == 1


def test_rule_4_an_answer_that_matches_as_well_is_quoted_once() -> None:
    exchange = [user("in which year was the locker bought?"), assistant("The locker was bought in the year 1987.")]
    history = thread(*exchange, *small_talk(), user("the year the locker was bought, again?"))
    assert len(quotes(text(history, View(start=2)))) == 2


def test_rule_4_an_answer_that_another_text_stands_for_is_no_longer_to_be_seen() -> None:
    exchange = [user("in which year was the locker bought?"), assistant("That happened in 1987.")]
    history = thread(*exchange, *small_talk(), user("the year the locker was bought, again?"))
    view = View(substitutes={0: Substitute("[clipped]", 5), 1: Substitute("[clipped]", 5)})
    assert len(quotes(text(history, view))) == 2


def test_rule_5_the_message_is_a_record_right_before_the_last_user_message() -> None:
    done = recalled(CHAT, CUT)
    assert done.view == replace(CUT, recalled=done.view.recalled)
    assert done.view.recalled is not None
    assert done.view.recalled.before == 24
    lines = done.view.recalled.text.split("\n")
    assert lines[0] == FRAME
    assert re.fullmatch(r"===== BEGIN RECORD [0-9a-f]{8} =====", lines[1])
    assert lines[-1] == lines[1].replace("BEGIN", "END")


def test_rule_5_its_fence_depends_on_what_it_holds_and_on_who_asks() -> None:
    other = thread(*CHAT.messages[:-1], user("locker code, please?"))
    assert text(CHAT, CUT).split("\n")[1] != text(other, CUT).split("\n")[1]


def test_rule_5_it_keeps_within_the_room_of_the_policy_and_of_the_limits() -> None:
    needed = recalled(CHAT, CUT).view.recalled
    assert needed is not None
    assert needed.tokens == words(needed.text) + 4
    size = CUT.size(CHAT)
    assert recalled(CHAT, CUT, recall_tokens=needed.tokens + 40).view.recalled == needed
    assert not recalled(CHAT, CUT, recall_tokens=30).trimmed
    assert recalled(CHAT, CUT, limits=Limits(size.tokens + needed.tokens + 40)).trimmed
    assert not recalled(CHAT, CUT, limits=Limits(size.tokens + 30)).trimmed
    assert not recalled(CHAT, CUT, limits=Limits(size.tokens - 1)).trimmed
    assert recalled(CHAT, CUT, limits=Limits(items=size.items + 1)).trimmed
    assert not recalled(CHAT, CUT, limits=Limits(items=size.items)).trimmed


def test_rule_5_what_was_recalled_before_takes_no_room() -> None:
    before = replace(CUT, recalled=Recalled("x", 500, 24))
    size = CUT.size(CHAT)
    assert recalled(CHAT, before, limits=Limits(size.tokens + 100, size.items + 1)).trimmed


def test_rule_5_the_best_fit_when_not_all_do() -> None:
    facts = [user(f"locker {n} has the code QR3790{n} and stands in hall {n}") for n in range(9)]
    history = thread(*facts, *small_talk(), user("code of locker 7 in hall 7?"))
    found = quotes(text(history, View(start=9), recall_tokens=110))
    assert any("QR37907" in quote for quote in found)
    assert len(found) < 4


def test_rule_5_where_estimates_were_short_the_worst_is_left_out() -> None:
    facts = [user(f"locker number {n} has the code QR3790{n}") for n in range(2)]
    request = asked(
        thread(*facts, *small_talk(), user("the code of locker number 1?")), View(start=2), recall_tokens=140
    )

    def count(text: str) -> int:  # a text of several quotes counts more than its parts
        return words(text) + 40 * text.count("[message")

    found = finished(Recall().trim(replace(request, count=count))).view.recalled
    assert found is not None
    assert [q.split("\n")[0] for q in quotes(found.text)] == ["[message 2 of 19, user]"]


def test_rule_6_the_view_is_for_this_request_only() -> None:
    done = recalled(CHAT, CUT)
    assert (done.trimmed, done.persist) == (True, False)


said = st.lists(
    st.sampled_from(["code", "locker", "blue", "QR1", "AB2", "?", "of", "the", "is", "\n", "字码"]), max_size=30
)


@PROFILE
@given(st.lists(st.tuples(st.booleans(), said), min_size=1, max_size=20), st.integers(0, 20), st.integers(1, 200), said)
def test_whatever_is_said_what_is_recalled_was_cut_and_fits(
    script: list[tuple[bool, list[str]]], start: int, room: int, query: list[str]
) -> None:
    messages = [(user if asks else assistant)(" ".join(parts)) for asks, parts in script]
    history = thread(*messages, user(" ".join(query)))
    view = View(start=min(start, len(messages)))
    first, again = (recalled(history, view, recall_tokens=room) for _ in range(2))
    assert first == again
    found = first.view.recalled
    if found is not None:
        assert words(found.text) + 4 == found.tokens <= room
        places = [int(n) for n in re.findall(r"\[message (\d+) of", found.text)]
        assert places == sorted(places)
        assert 0 < places[-1] <= view.start
        assert found.before == len(messages)
