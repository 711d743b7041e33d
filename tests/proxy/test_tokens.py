import importlib.util
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from transom.proxy import tokens
from transom.proxy.tokens import EncodingUnavailable, Tokenizer, build_encoding, load_encoding

ENCODING = load_encoding()


def reference() -> tiktoken.Encoding:
    """Build o200k by tiktoken's own definition, from the local file."""
    package = importlib.util.find_spec("litellm").origin  # type: ignore[union-attr]
    path = str(Path(package).parent / "litellm_core_utils" / "tokenizers" / tokens.ENCODING_FILE)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        patch.setattr(
            openai_public, "load_tiktoken_bpe", lambda _, expected_hash: load_tiktoken_bpe(path, expected_hash)
        )
        return tiktoken.Encoding(**openai_public.o200k_base())


REFERENCE = reference()
TOKENIZER = Tokenizer(ENCODING)

TEXTS = {
    "": 0,
    "hello world": 2,
    "Hello, world!": 4,
    "The quick brown fox jumps over the lazy dog.": 10,
    "1234567": 3,
    "東京は日本の首都です。": 8,
}

PIECES = [
    "a",
    "Bc",
    "DEF",
    "'s",
    "'LL",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "1",
    "234",
    "é",
    "日",
    "ก",
    "😀",
    "\u0301",
    "//",
    "!",
    "<|endoftext|>",
]


class Broken:
    """An encoding whose native code panics, which is no Exception."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.asked = 0

    def encode_ordinary(self, text: str) -> list[int]:
        self.asked += 1
        raise self.error


class Panic(BaseException):
    pass


class Counting:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode_ordinary(self, text: str) -> list[int]:
        self.asked.append(text)
        return [0] * len(text)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_counts_agree_where_the_pattern_splits(text: str) -> None:
    assert TOKENIZER.count(text) == len(REFERENCE.encode_ordinary(text))


@pytest.mark.parametrize(("text", "count"), TEXTS.items())
def test_counts_are_o200k(text: str, count: int) -> None:
    assert TOKENIZER.count(text) == count


@given(st.text(max_size=300))
def test_counts_are_those_of_tiktokens_own_o200k(text: str) -> None:
    assert TOKENIZER.count(text) == len(REFERENCE.encode_ordinary(text))


def test_control_token_text_is_ordinary_text() -> None:
    assert TOKENIZER.count("<|endoftext|>") > 1
    assert TOKENIZER.count("<|endoftext|>" * 100) > 100


def test_a_text_of_64_kb_is_counted_whole() -> None:
    encoding = Counting()
    Tokenizer(encoding).count("a" * 65_536)  # type: ignore[arg-type]
    assert encoding.asked == ["a" * 65_536]


@pytest.mark.parametrize("text", ["a" * 65_537, "日" * 30_000, "b" * 1_000_000])
def test_longer_texts_are_counted_in_slices(text: str) -> None:
    encoding = Counting()
    assert Tokenizer(encoding).count(text) == len(text)  # type: ignore[arg-type]
    assert "".join(encoding.asked) == text
    assert max(map(len, encoding.asked)) <= 16_384


def test_slicing_changes_a_long_count_by_a_token_a_seam_at_most() -> None:
    text = "The quick brown fox, number 1234, jumps over the lazy dog.\n" * 2000
    exact = len(ENCODING.encode_ordinary(text))
    assert abs(TOKENIZER.count(text) - exact) <= 2 * (len(text) // 16_384)


@pytest.mark.parametrize("error", [ValueError, Panic])
def test_an_encoder_error_falls_back_to_four_bytes_a_token(error: type[BaseException]) -> None:
    tokenizer = Tokenizer(Broken(error))  # type: ignore[arg-type]
    assert tokenizer.count("abcde") == 2
    assert tokenizer.count("日本") == 2


def test_a_stop_is_not_an_encoder_error() -> None:
    with pytest.raises(KeyboardInterrupt):
        Tokenizer(Broken(KeyboardInterrupt)).count("x")  # type: ignore[arg-type]


def test_half_surrogates_are_counted() -> None:
    assert TOKENIZER.count("a\ud83d") >= 1
    assert TOKENIZER.count("\ud83d" * 40_000) >= 1


def test_a_text_is_counted_once() -> None:
    encoding = Counting()
    tokenizer = Tokenizer(encoding)  # type: ignore[arg-type]
    assert [tokenizer.count("abc") for _ in range(3)] == [3, 3, 3]
    assert encoding.asked == ["abc"]


def test_what_is_used_stays_remembered_and_the_rest_is_forgotten() -> None:
    encoding = Counting()
    tokenizer = Tokenizer(encoding, cache_bytes=300)  # type: ignore[arg-type]
    tokenizer.count("first")
    for other in range(100):
        tokenizer.count(f"{other:04}")
        tokenizer.count("first")
    assert encoding.asked.count("first") == 1
    tokenizer.count("0000")
    assert encoding.asked.count("0000") == 2


@pytest.mark.parametrize("letter", ["x", "語"])  # one byte in memory, and two
def test_a_text_larger_than_the_memory_is_not_remembered(letter: str) -> None:
    encoding = Counting()
    size = sys.getsizeof(letter * 100) + tokens.ENTRY_BYTES
    tokenizer = Tokenizer(encoding, cache_bytes=size)  # type: ignore[arg-type]
    for text in (letter * 101, letter * 101, letter * 100, letter * 100):
        tokenizer.count(text)
    assert [len(text) for text in encoding.asked] == [101, 101, 100]


def test_short_texts_are_remembered_within_the_same_memory() -> None:
    tokenizer = Tokenizer(ENCODING, cache_bytes=1_000_000)
    tracemalloc.start()
    try:
        for number in range(50_000):
            tokenizer.count(str(number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000


def test_the_default_encoding_is_loaded() -> None:
    assert Tokenizer().count("hello world") == 2


def test_another_file_than_the_published_one_is_refused() -> None:
    with pytest.raises(EncodingUnavailable, match="not the published one"):
        build_encoding(b"aGVsbG8= 0\n")


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ENCODING_FILE", "not-there")
    with pytest.raises(EncodingUnavailable, match="cannot be read"):
        load_encoding()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EncodingUnavailable, match="not installed"):
        load_encoding()


def test_counting_is_steady_as_a_text_grows() -> None:
    text = "one two three four five six seven " * 20
    counts = [TOKENIZER.count(text[:end]) for end in range(0, len(text), 34)]
    assert all(before < after for before, after in pairwise(counts))
