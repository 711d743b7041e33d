"""Views come back from their recipes as they were; one whose summary is gone says nothing."""

import json
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.policies.view import Recalled, Substitute, Summary, View
from transom.proxy import recipes

SUMMARY = Summary(bytes(16), "[Conversation Summary] …", 9, 4)
places = st.integers(0, 10_000)
views = st.builds(
    View,
    start=places,
    head=st.lists(places, max_size=5).map(lambda found: tuple(sorted(set(found)))),
    summary=st.sampled_from([None, SUMMARY]),
    omitted=st.frozensets(places, max_size=5),
    substitutes=st.dictionaries(places, st.builds(Substitute, st.text(max_size=9), places), max_size=3).map(
        MappingProxyType
    ),
    carrier=st.none() | places,
    recalled=st.none() | st.builds(Recalled, st.text(max_size=9), places, places),
)


@given(views, st.lists(st.sampled_from(["cut", "compressed"]), max_size=2).map(tuple))
def test_views_come_back_as_they_were(view: View, labels: tuple[str, ...]) -> None:
    written = recipes.encode(view, labels)
    assert recipes.decode(written, {SUMMARY.id: SUMMARY}.get) == (view, labels)
    assert written == recipes.encode(view, labels)
    assert recipes.from_json(json.loads(written), {SUMMARY.id: SUMMARY}.get) == (view, labels)


def test_a_recipe_is_json_that_says_what_is_not_as_usual() -> None:
    assert recipes.encode(View()) == b"{}"
    view = View(4, (1,), SUMMARY, substitutes=MappingProxyType({5: Substitute("é", 7)}), carrier=1)
    assert json.loads(recipes.encode(view, ("cut",))) == {
        "start": 4,
        "head": [1],
        "summary": "00" * 16,
        "carrier": 1,
        "substitutes": {"5": {"text": "é", "tokens": 7}},
        "labels": ["cut"],
    }


def test_a_view_whose_summary_is_gone_says_nothing() -> None:
    assert recipes.decode(recipes.encode(View(start=4, summary=SUMMARY)), lambda _: None) is None


def test_a_recipe_holds_no_text_of_the_summary() -> None:
    assert b"Summary" not in recipes.encode(View(start=4, summary=SUMMARY))


@pytest.mark.parametrize("torn", [b"", b"[]", b"nonsense", b"\xff", recipes.encode(View())[:-1]])
def test_torn_recipes_are_noticed(torn: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        recipes.decode(torn, lambda _: None)
