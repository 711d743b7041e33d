import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.builders import words
from transom.policies.constraints import HEADING, SHORTEST, merged, section, split_constraints, verified


def test_the_last_section_is_split_from_the_body() -> None:
    text = f'The user books flights.\n\n{HEADING}\n- "never before nine"\n- "only window seats"\n'
    assert split_constraints(text) == ("The user books flights.", ["never before nine", "only window seats"])


def test_without_a_section_all_is_body() -> None:
    assert split_constraints("  All of it.\n- an item\n") == ("All of it.\n- an item", [])


def test_only_the_last_section_counts() -> None:
    text = f'{HEADING}\n- "an old constraint"\n\nmore\n\n{HEADING}\n- "the new constraint"'
    body, quotes = split_constraints(text)
    assert quotes == ["the new constraint"]
    assert body.endswith("more")


@pytest.mark.parametrize(
    "heading",
    ["User constraints:", "User constraints (verbatim)", "## User Constraints", "**User constraints (verbatim):**"],
)
def test_a_heading_may_be_written_in_other_ways(heading: str) -> None:
    assert split_constraints(f'body\n{heading}\n- "never before nine"') == ("body", ["never before nine"])


@pytest.mark.parametrize("words_of_it", ["The user constraints: none", "user constraints are important"])
def test_words_in_a_sentence_are_no_heading(words_of_it: str) -> None:
    assert split_constraints(f"{words_of_it}\n- never before nine")[1] == []


@pytest.mark.parametrize(
    "line",
    [
        '- "never before nine"',
        "* “never before nine”",
        "• «never before nine»",
        "1. 'never before nine'",
        "2) `never before nine`",
        "  -   never before nine  ",
    ],
)
def test_quotes_come_in_many_forms(line: str) -> None:
    assert split_constraints(f"body\n{HEADING}\n{line}")[1] == ["never before nine"]


@pytest.mark.parametrize("line", ['"', '- "', '- ""', "- x", f"- {'x' * (SHORTEST - 1)}", "never before nine"])
def test_what_says_nothing_is_no_quote(line: str) -> None:
    assert split_constraints(f"body\n{HEADING}\n{line}")[1] == []


def test_an_unclosed_quote_is_taken_as_it_is() -> None:
    assert split_constraints(f'body\n{HEADING}\n- "never before nine')[1] == ['"never before nine']


def test_only_what_the_user_said_is_verified() -> None:
    said = ["Please, never before nine.", "I like trains."]
    quotes = ["never before nine", "Never before nine", "I like trains", "never before nine. I like"]
    assert verified(quotes, said) == ["never before nine", "I like trains"]
    assert verified(quotes, []) == []


def test_new_quotes_are_added_behind_the_old() -> None:
    assert merged(["only window seats"], ["never before nine"], words, 100) == (
        "only window seats",
        "never before nine",
    )


def test_a_quote_that_is_known_is_not_added_again() -> None:
    assert merged(["never before nine"], ["never before nine", "before nine"], words, 100) == ("never before nine",)


def test_a_longer_quote_takes_the_place_of_its_part() -> None:
    assert merged(["before nine", "window seats"], ["never before nine"], words, 100) == (
        "window seats",
        "never before nine",
    )


def test_the_oldest_go_first_over_the_limit() -> None:
    quotes = ["one two three", "four five six", "seven eight nine"]  # 7 each
    assert merged(quotes, [], words, 21) == tuple(quotes)
    assert merged(quotes, [], words, 20) == tuple(quotes[1:])
    assert merged(quotes, [], words, 7) == tuple(quotes[2:])
    assert merged(quotes, [], words, 0) == ()


def test_a_quote_over_the_limit_does_not_cost_the_others() -> None:
    assert merged(["never before nine"], ["a very long quote " * 20], words, 40) == ("never before nine",)


def test_a_section_that_comes_first_does_not_cost_the_body() -> None:
    body, _ = split_constraints(f'{HEADING}\n- "never before nine"\n\nThe user books flights to Oslo.')
    assert "Oslo" in body


def test_a_section_can_be_read_back() -> None:
    quotes = ["never before nine", "only window seats"]
    text = section(quotes)
    assert text.startswith(HEADING)
    assert split_constraints(f"body\n\n{text}") == ("body", quotes)


def test_without_quotes_there_is_no_section() -> None:
    assert section([]) == ""


sayings = st.text(st.characters(categories=["L", "Zs"]), min_size=SHORTEST).map(str.strip).filter(lambda q: len(q) > 8)


@given(st.lists(sayings, max_size=6), st.lists(sayings, max_size=6), st.integers(0, 60))
def test_what_is_carried_was_given_once_and_fits(old: list[str], new: list[str], most: int) -> None:
    kept = merged(old, new, words, most)
    assert set(kept) <= {*old, *new}
    assert sum(words(quote) + 4 for quote in kept) <= most


@given(st.text(), st.text())
def test_no_answer_of_a_model_breaks_the_split(before: str, after: str) -> None:
    body, quotes = split_constraints(f"{before}\n{HEADING}\n{after}")
    lines = f"{before}\n{HEADING}\n{after}".split("\n")
    assert {line.strip() for line in body.split("\n")} <= {"", *(line.strip() for line in lines)}
    assert all(len(quote) >= SHORTEST for quote in quotes)
