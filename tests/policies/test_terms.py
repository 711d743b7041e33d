import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.policies.terms import STEM, terms

PROFILE = settings.get_profile("policies")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("STRASSE", "straße"),
        ("ＡＢＣ１２３", "abc123"),
        ("cafe\u0301", "café"),
        ("می\u200cخواهم", "میخواهم"),
        ("co\u00adoperate", "cooperate"),
    ],
)
def test_rule_1_texts_are_compared_in_one_form(text: str, same: str) -> None:
    assert terms(text) == terms(same) != []


def test_rule_2_words_are_runs_of_letters_and_digits() -> None:
    assert terms("My order_id is #W2378156, isn't it?") == ["my", "order", "id", "is", "w2378156", "isn", "t", "it"]
    assert terms("Größe_ab: 42,5 €") == ["grösse", "ab", "42", "5"]


@pytest.mark.parametrize("word", ["हिन्दी", "العَرَبِيَّة", "தமிழ்", "עִבְרִית", "ελληνικά", "русский"])
def test_rule_2_marks_belong_to_words(word: str) -> None:
    assert len(terms(f"{word} {word}")) == 2


def test_rule_2_inflected_forms_meet() -> None:
    assert terms("developing") == terms("DEVELOPMENT") == ["develop"]
    assert terms("разработка") == terms("разработки")
    assert terms("a" * (STEM + 5)) == ["a" * STEM]


def test_rule_2_words_with_digits_count_whole() -> None:
    assert terms("credit_card_12345678901 a1bcdefghij") == ["credit", "card", "12345678901", "a1bcdefghij"]
    assert terms("é a1bcdefghij") == ["é", "a1bcdefghij"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都", ["東京", "京都"]),
        ("水", ["水"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("ｶﾀ", ["カタ"]),
        ("ภาษา", ["ภา", "าษ", "ษา"]),
        ("ລາວ", ["ລາ", "າວ"]),
        ("ខ្មែរ", ["ខ្", "្ម", "មែ", "ែរ"]),
        ("မြန်", ["မြ", "ြန", "န်"]),
        ("部署v2到东京", ["部署", "v2", "到东", "东京"]),
    ],
)
def test_rule_3_scripts_without_spaces_give_bigrams(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("서울에서", ["서울에서", "서울", "울에", "에서"]), ("서울", ["서울"]), ("물", ["물"])],
)
def test_rule_4_hangul_gives_words_and_bigrams(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@PROFILE
@given(st.text())
def test_whatever_the_text_terms_are_short_words_without_line_ends(text: str) -> None:
    for term in terms(text):
        assert term
        assert not any(c.isspace() for c in term)
