import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.builders import policy
from transom.policies.limits import Limits
from transom.policies.render import ELIDE_OVER
from transom.policies.summary_size import FRAME_TOKENS, LARGEST, SHORTEST_RESULT, SMALLEST, SummarySize, summary_size


def sizes(tokens: int | None, fixed: int = 0, **keys: object) -> tuple[int, int]:
    found = summary_size(policy(**keys), Limits(tokens), fixed)
    return found.text, found.ledger


def test_rule_1_a_written_size_is_the_texts_whatever_there_is_room_for() -> None:
    assert sizes(4000, 3900, summary_max_tokens=400) == (400, 200)
    assert sizes(None, summary_max_tokens=9_000) == (9_000, 4_500)


@pytest.mark.parametrize(("limit", "text"), [(800, SMALLEST), (4_000, 500), (8_000, 1_000), (100_000, LARGEST)])
def test_rule_2_an_eighth_of_the_limit(limit: int, text: int) -> None:
    assert sizes(limit) == (text, text // 2)


def test_rule_2_without_a_limit_there_is_none_to_share() -> None:
    assert sizes(None, 50_000) == (1_024, 512)


def test_rule_3_a_large_preamble_makes_summaries_smaller() -> None:
    text, ledger = sizes(4_000, 1_250, trim_to=0.5)
    assert text + ledger == int(750 * 0.35)
    assert text == ledger + 1 or text == ledger


@pytest.mark.parametrize("fixed", [2_100, 3_999, 50_000])
def test_rule_3_but_never_of_no_use(fixed: int) -> None:
    assert sum(sizes(4_000, fixed)) == SMALLEST


def test_rule_3_in_a_large_window_a_preamble_changes_nothing() -> None:
    assert sizes(120_000, 10_000) == (LARGEST, LARGEST // 2)


@pytest.mark.parametrize(
    ("written", "characters"), [(50, SHORTEST_RESULT), (400, 800), (1_000, ELIDE_OVER), (4_000, ELIDE_OVER)]
)
def test_rule_4_of_a_result_no_more_is_shown_than_a_text_can_hold(written: int, characters: int) -> None:
    assert summary_size(policy(summary_max_tokens=written), Limits(4_000), 0).result == characters


def test_rule_4_without_a_limit_as_much_as_ever() -> None:
    assert summary_size(policy(), Limits(), 0).result == ELIDE_OVER


def test_a_message_holds_text_list_and_frame() -> None:
    assert SummarySize(500, 250).message == 750 + FRAME_TOKENS


@given(st.integers(1, 200_000), st.integers(0, 200_000), st.floats(0.1, 1))
def test_whatever_the_limits_both_parts_have_room(limit: int, fixed: int, trim_to: float) -> None:
    text, ledger = sizes(limit, fixed, trim_to=trim_to)
    assert 0 < ledger <= text <= LARGEST
    assert SMALLEST <= text + ledger <= 1.5 * max(SMALLEST, limit / 8)
    assert sizes(limit, fixed + 1_000, trim_to=trim_to) <= (text, ledger)
