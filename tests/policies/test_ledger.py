import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.builders import words
from transom.policies.items import Call
from transom.policies.ledger import (
    HEADING,
    LONGEST,
    MOST_ALIKE,
    MOST_OF_A_TEXT,
    NAMES_BEHIND,
    SEARCHED,
    identifiers,
    is_code,
    is_number,
    merged,
    section,
)

PROFILE = settings.get_profile("policies")
ROOM = 1_000


def made(tool: str = "find", **arguments: object) -> Call:
    return Call("c", tool, json.dumps(arguments))


def listed(*folded: Call | str, old: tuple[str, ...] = (), room: int = ROOM, told: str = "") -> tuple[str, ...]:
    return merged(old, folded, words, room, told)


def flight(number: int, airline: str = "HAT") -> str:
    """Return one of a hundred codes of one form, in no order of their numbers."""
    return f"{airline}{number * 37 % 100:03}"


def unlike(number: int) -> str:
    """Return one of many codes of different forms."""
    return "-".join(["A1" for _ in range(number % 9)] + [f"b{number}c" for _ in range(number // 9 + 1)])


@pytest.mark.parametrize(
    "value", ["4WQ150", "mia_li_3668", "a@b.de", "/etc/hosts", "src/app.py", "./a/b", "C:\\dir\\f.txt", "https://x.y/z"]
)
def test_codes_addresses_and_paths_are_codes(value: str) -> None:
    assert is_code(value)
    assert not is_number(value)


@pytest.mark.parametrize("value", ["12345", "2024-05-20", "12:30:05", "1,250.00"])
def test_long_numbers_and_dates_are_numbers(value: str) -> None:
    assert is_number(value)
    assert not is_code(value)


@pytest.mark.parametrize("value", ["2024-05-09T15:14:07", "2024-05-09T15:14:07.5+02:00", "2024-05-09T15:14Z"])
def test_moments_are_numbers(value: str) -> None:
    assert is_number(value)
    assert not is_code(value)


@pytest.mark.parametrize("value", ["24-hour", "10am", "2nd", "500ms", "12px"])
def test_quantities_are_neither(value: str) -> None:
    assert not is_code(value)
    assert not is_number(value)


@pytest.mark.parametrize("value", ["4x4x4", "3f2a", "12345abc", "82K959", "1st-offer", "7zip.exe"])
def test_what_only_begins_like_a_quantity_is_a_code(value: str) -> None:
    assert is_code(value)


@pytest.mark.parametrize("value", ["word", "and/or", "12", "_", "read_file", "e.g."])
def test_other_words_are_neither(value: str) -> None:
    assert not is_code(value)
    assert not is_number(value)


def test_identifiers_of_a_text_are_distinct_codes_first_without_what_stands_at_their_edges() -> None:
    text = (
        'Order #W2378156, (W2378156) of 2024-05-20: {"mail": "a.b@c.de"}, see /etc/hosts. https://x.y/z?a=1&b=2; 7 a1'
    )
    assert list(identifiers(text)) == ["W2378156", "a.b@c.de", "/etc/hosts", "https://x.y/z?a=1&b=2", "2024-05-20"]


def test_identifiers_have_bounded_lengths() -> None:
    assert list(identifiers("a1 " + "b2" * LONGEST)) == []


def test_rule_1_values_of_arguments_at_any_depth_what_a_call_names_first_counts_as_newest() -> None:
    found = listed(made(user={"id": "mia_3668", "tags": [["HAT001"], "HAT002"]}, total=1250, rate=1250.5))
    assert found == ("id=mia_3668", "tags=HAT001", "tags=HAT002", "total=1250", "rate=1250.5")


def test_rule_1_names_of_a_few_words_count() -> None:
    assert listed(made(city="Rio de Janeiro")) == ("city=Rio de Janeiro",)


@pytest.mark.parametrize(
    "value", ["a sentence of more than four words", "x" * (LONGEST + 1), "two\nlines", "ab", 42, True, None, ""]
)
def test_rule_1_sentences_flags_and_short_numbers_do_not(value: object) -> None:
    assert listed(made(value=value)) == ()


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000, '"' + "x" * SEARCHED + '"'])
def test_rule_1_arguments_that_are_no_json_or_a_document_say_nothing(arguments: str) -> None:
    assert listed(Call("c", "find", arguments)) == ()


def test_rule_1_what_is_nested_too_deep_is_left_alone() -> None:
    assert listed(Call("c", "find", '[[[[[[[["HAT001"]]]]]]]]')) == ("find=HAT001",)
    assert listed(Call("c", "find", '[[[[[[[[["HAT001"]]]]]]]]]')) == ()


def test_rule_1_arguments_have_names_that_can_be_told_from_values() -> None:
    assert listed(made(**{"a=b\nc": "HAT001", "": "HAT002"})) == ("a b c=HAT001", "value=HAT002")
    assert listed(Call("c", "find", '"HAT001"')) == ("find=HAT001",)


def test_rule_2_of_a_text_come_codes_and_no_numbers() -> None:
    assert listed("booked HAT001 for 1250") == ("=HAT001",)


def test_rule_2_the_first_few_of_a_text() -> None:
    codes = [unlike(n) for n in range(100)]
    assert listed(" ".join(codes)) == tuple(f"={code}" for code in codes[:MOST_OF_A_TEXT])
    assert listed(" " * SEARCHED + "HAT001") == ()


def test_rule_2_of_a_listing_of_like_things_only_a_few() -> None:
    flights = [f"HAT{n:03}" for n in range(100)]
    found = listed(f"{' '.join(flights)} gift_card_71 mia_li_36")
    assert found == (*(f"={flight}" for flight in flights[:MOST_ALIKE]), "=gift_card_71", "=mia_li_36")


def test_rule_3_a_value_is_listed_once_under_its_last_name() -> None:
    found = listed(made(old="HAT001"), made(other="HAT002"), made(new="HAT001"))
    assert found == ("new=HAT001", "other=HAT002")


def test_rule_3_what_a_call_used_keeps_its_name_when_it_is_seen_again() -> None:
    assert listed("HAT001", made(flight="HAT001"), "HAT001") == ("flight=HAT001",)


def test_rule_3_what_was_only_seen_gets_a_name_when_a_call_uses_it() -> None:
    assert listed(made(flight="HAT001"), old=("=HAT002", "=HAT001")) == ("flight=HAT001", "=HAT002")


def test_rule_4_the_newest_come_first_also_before_those_of_earlier_folds() -> None:
    assert listed(made(a="HAT003"), "HAT004", old=("a=HAT002", "a=HAT001")) == (
        "=HAT004",
        "a=HAT003",
        "a=HAT002",
        "a=HAT001",
    )


def test_rule_4_the_oldest_give_way() -> None:
    calls = [made(a=flight(n)) for n in range(100)]
    found = listed(*calls, room=60)
    assert found == tuple(f"a={flight(n)}" for n in range(99, 99 - len(found), -1))
    assert 10 < len(found) < 20


def test_rule_4_names_give_way_before_identifiers() -> None:
    calls = [made(code=flight(n), name="Mia Li") for n in range(5)]
    found = listed(*calls, room=24)
    assert set(found) == {f"code={flight(n)}" for n in range(5)}


@pytest.mark.parametrize("later", range(0, 40, 4))
def test_rule_4_a_name_lasts_as_long_as_an_identifier_that_was_used_some_values_earlier(later: int) -> None:
    def survives(before: int, one: Call) -> bool:
        since = [made(code=flight(n)) for n in range(before)]
        return listed(one)[0] in listed(*(made(code=flight(n)) for n in range(50, 90)), one, *since, room=80)

    assert survives(later, made(name="Mia")) == survives(later + NAMES_BEHIND, made(code="ZRH-1"))


def test_rule_4_calls_and_texts_get_half_the_room_each() -> None:
    folded = [one for n in range(100) for one in (made(a=flight(n)), flight(n, "ORD"))]
    found = listed(*folded, room=60)
    seen = [one for one in found if one.startswith("=")]
    assert abs(len(seen) - len(found) / 2) <= 1


def test_rule_4_and_what_the_others_leave() -> None:
    assert len(listed(*(flight(n) for n in range(100)), room=60)) > 14
    assert len(listed(*(made(a=flight(n)) for n in range(100)), room=60)) > 14


def test_rule_5_of_a_count_only_the_newest() -> None:
    turns = [f"[turn-{n:03}] I would like to know more" for n in range(8, 30)]
    assert listed(*turns) == ("=turn-029", "=turn-028", "=turn-027", "=turn-026")
    assert listed(*(made(start_line=n) for n in range(100, 900, 100))) == tuple(
        f"start_line={n}" for n in (800, 700, 600, 500)
    )


def test_rule_5_a_count_goes_on_from_fold_to_fold() -> None:
    entries: tuple[str, ...] = ()
    for first in range(0, 90, 9):
        entries = listed(*(f"line 9.{n}x" for n in range(first, first + 9)), old=entries)
        assert len(entries) == MOST_ALIKE
    assert entries[0] == "=9.89x"


def test_rule_5_numbers_that_also_go_down_are_no_count() -> None:
    codes = ["HAT001", "HAT005", "HAT003", "HAT007", "HAT009"]
    assert len(listed(*codes)) == len(listed(*(made(flight=code) for code in codes))) == len(codes)


def test_rule_5_a_few_alike_and_values_that_differ_in_more_are_no_count() -> None:
    few = [f"turn-{n}" for n in range(MOST_ALIKE)]
    assert len(listed(*few)) == MOST_ALIKE
    mixed = [f"{'ab'[n % 2]}x-{n}" for n in range(2 * MOST_ALIKE)]
    assert len(listed(*mixed)) == len(mixed)
    named = [made(**{"ab"[n % 2]: f"ORD-{n}"}) for n in range(2 * MOST_ALIKE)]
    assert len(listed(*named)) == len(named)


def test_rule_5_what_one_call_names_together_is_no_count() -> None:
    assert len(listed(made(orders=[f"ORD-{n}" for n in range(8)]))) == 8


def test_rule_6_what_the_text_tells_is_not_listed_beside_it() -> None:
    told = "Mia booked HAT002 (not HAT0011)."
    entries = listed(made(flight="HAT001"), made(flight="HAT002"), told=told)
    assert section(entries, told) == f"{HEADING} flight: HAT001"


def test_rule_6_what_the_text_tells_takes_no_room_and_is_remembered_for_a_text_that_does_not() -> None:
    flights = [flight(n) for n in range(100)]
    calls = [made(flight=code) for code in flights]
    alone, told = listed(*calls, room=30), " ".join(flights[:20])
    entries = listed(*calls, room=30, told=told)
    assert len(entries) == len(alone) + 20
    assert section(entries, told) == section(alone)
    assert listed(old=entries, room=30) == alone


def test_rule_7_the_section_is_one_line() -> None:
    entries = ("flight=HAT002", "user=mia", "=W1234", "flight=HAT001", "=a@b.de")
    assert section(entries) == f"{HEADING} flight: HAT002, HAT001; user: mia; mentioned: W1234, a@b.de"
    assert section(("=W1234",)) == f"{HEADING} mentioned: W1234"
    assert section(()) == ""


folded = st.lists(
    st.text(max_size=40) | st.builds(made, a=st.text(max_size=30) | st.integers(), b=st.lists(st.text(max_size=8)))
)


@PROFILE
@given(folded, folded, st.integers(0, 60), st.text(max_size=60))
def test_whatever_is_folded_the_section_fits_and_nothing_is_listed_twice(
    first: list[Call | str], second: list[Call | str], room: int, told: str
) -> None:
    entries = listed(*second, old=listed(*first, room=room), room=room, told=told)
    values = [entry.partition("=")[2] for entry in entries]
    assert len(set(values)) == len(values)
    assert words(section(entries, told)) <= room
    again = listed(old=entries, room=room, told=told)
    assert again == tuple(entry for entry in entries if entry in again)  # what is left of some may be a count
