"""How a fault is put into words."""

import pytest

from transom.proxy.config.sentences import nearest, unknown_key


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("max_tokns", ["max_tokens", "trim_to"], "; did you mean max_tokens?"),
        ("MAX_TOKENS", ["max_tokens"], "; did you mean max_tokens?"),
        ("zebra", ["max_tokens"], ""),
        ("a", [], ""),
    ],
)
def test_nearest(word: str, known: list[str], said: str) -> None:
    assert nearest(word, known) == said


def test_an_unknown_key_far_from_all_others_lists_them() -> None:
    assert unknown_key("zebra", ["b", "a"]) == "unknown key; the keys here are a, b"


def test_sections_of_other_proxies_are_known_for_what_they_are() -> None:
    assert unknown_key("router_settings", ["a"]) == "belongs to LiteLLM's proxy and has no effect here; remove it"
