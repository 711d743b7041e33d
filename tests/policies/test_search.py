from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from transom.policies.passages import split
from transom.policies.search import MOST_TERMS, RELATIVE, coverage, query_terms, ranked

PROFILE = settings.get_profile("policies")
FILLER = [f"we talked about {thing} for a while and it was nice" for thing in ("rain", "food", "work", "music", "cars")]


def best(query: str, texts: Sequence[str]) -> list[int]:
    found = [(place, passage) for place, text in enumerate(texts) for passage in split(text)]
    return [m.position for m in ranked(query_terms(query), found, max(1, len(texts)))]


def test_rule_1_what_holds_more_of_the_query_comes_first() -> None:
    texts = [*FILLER, "my locker and its code are QR37900 and so on", "my locker is in the hall over there"]
    assert best("my locker code", texts) == [5, 6]


def test_rule_1_short_passages_come_before_long_ones_that_hold_as_much() -> None:
    texts = [*FILLER, "the code of the locker is blue", "the code of the locker is " + "very blue " * 60]
    assert best("locker code", texts)[0] == 5


def test_rule_1_each_term_of_the_query_counts_once() -> None:
    assert query_terms("Code, code, CODE of codes") == ["code", "of", "codes"]


def test_rule_1_of_a_long_query_the_most_telling_terms_count() -> None:
    query = " ".join(["W1234", *("to" + chr(97 + n % 26) * (n // 26 + 1) for n in range(60)), "magnificent"])
    found = query_terms(query)
    assert len(found) == MOST_TERMS
    assert found[:2] == ["w1234", "magnifi"]


def test_rule_2_of_nearly_equal_ones_the_newer_wins() -> None:
    texts = ["my code is now AB12", *FILLER, "my code is now CD34"]
    assert best("what is my code", texts) == [6, 0]
    better = ["my locker code is now AB12", *FILLER, "my code is now CD34 I think"]
    assert best("locker code", better)[0] == 0


def test_rule_3_frequent_words_alone_never_match() -> None:
    assert best("it was nice, and for a while", FILLER) == []
    assert best("tell me about quantum chromodynamics in depth and detail", FILLER) == []


def test_rule_3_a_rare_word_matches_by_itself() -> None:
    assert best("W2378156?", [*FILLER, "order W2378156 was shipped yesterday"]) == [5]


def test_rule_3_not_if_it_is_a_small_part_of_the_query() -> None:
    query = "please write an essay about medieval music history with footnotes, references, illustrations and maps"
    assert best(query, FILLER) == []


def test_rule_4_what_says_nothing_beyond_the_query_is_no_match() -> None:
    assert best("thanks a lot!", [*FILLER, "thanks a lot", "thanks a lot, really!"]) == []
    assert best("thanks a lot!", [*FILLER, "thanks a lot for the new locker"]) == [5]


def test_rule_5_what_is_much_weaker_than_the_best_is_left_out() -> None:
    texts = [*FILLER, "the blue locker has code QR37900 since May", "another locker there is not in use at all"]
    found = [(place, passage) for place, text in enumerate(texts) for passage in split(text)]
    matches = ranked(query_terms("code QR37900 of the blue locker"), found, len(texts))
    assert [m.position for m in matches] == [5]
    assert matches[0].rarest == "qr37900"


def test_nothing_is_found_in_nothing() -> None:
    assert best("code", []) == []
    assert best("", FILLER) == []
    assert best("code", ["…", "!!!"]) == []


def test_other_scripts_are_searched_too() -> None:
    texts = ["我们谈到了天气和食物", "我的航班号是MB37618请记住", "今天的音乐很好听"]
    assert best("我的航班号是什么", texts) == [1]
    assert best("서울 호텔", ["어제 서울의 호텔을 예약했습니다", "날씨가 좋네요 그렇죠", "음악을 들었어요 오늘"]) == [0]


@PROFILE
@given(st.lists(st.text(alphabet="abcde ", max_size=40), max_size=12), st.text(alphabet="abcde ", max_size=20))
def test_whatever_is_searched_matches_are_ordered_and_hold_a_term(texts: list[str], query: str) -> None:
    found = [(place, passage) for place, text in enumerate(texts) for passage in split(text)]
    matches = ranked(query_terms(query), found, max(1, len(texts)))
    scores = [m.score for m in matches]
    assert scores == sorted(scores, reverse=True)
    assert all(score >= scores[0] * RELATIVE > 0 for score in scores)
    assert all(f"\n{m.rarest}\n" in m.passage.terms for m in matches)


def test_rule_3_who_tells_something_needs_more_of_a_match_than_who_asks() -> None:
    assert coverage("Where is the key") > coverage("Where is the key?")
    asked = [coverage(text) for text in ("鍵はどこ\uff1f", "\u0623\u064a\u0646\u061f", "Where? Here.")]
    assert asked == [coverage("?")] * 3


def test_rule_3_the_share_that_must_match_is_the_callers() -> None:
    query = query_terms("locker blue green yellow purple")
    texts = ["the locker is open today", "blue sky all day", "green tea with milk", "yellow sun up high", "purple rain"]
    found = [(place, passage) for place, text in enumerate(texts) for passage in split(text)]
    assert {m.position for m in ranked(query, found, len(found), 0.1)} >= {0, 1, 2, 3}
    assert ranked(query, found, len(found), 0.9) == []
