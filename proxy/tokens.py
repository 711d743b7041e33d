"""Counts tokens in o200k, offline and in bounded time; it knows texts, not messages or models."""

import base64
import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Protocol

import tiktoken

# OpenAI's o200k_base (tiktoken_ext/openai_public.py): the file's name in tiktoken's cache format, its checksum,
# and the pattern that splits a text before the byte pairs are merged.
ENCODING_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
ENCODING_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# Long texts are cut so that no pathological run (a million equal letters) meets the merge in one piece.
WHOLE_BYTES = 65_536
SLICE_CHARACTERS = 16_384
CACHE_BYTES = 4_000_000
ENTRY_BYTES = 64  # of a dictionary, and of the count
# One token is seldom less than four bytes of text: the estimate where the encoder fails.
BYTES_PER_TOKEN = 4


class EncodingUnavailable(RuntimeError):
    """Raise when the encoding file is missing or is not the published one."""


class Counter(Protocol):
    """The port: whatever turns a text into its number of tokens."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...


class Tokenizer:
    """Count with o200k, remembering the counts of recent texts.

    The memory is two generations of at most `cache_bytes` each: what is asked for again moves to the young one,
    and when that is full it becomes the old one. Safe to use from several threads.
    """

    def __init__(self, encoding: tiktoken.Encoding | None = None, cache_bytes: int = CACHE_BYTES) -> None:
        self._encoding = encoding or load_encoding()
        self._cache_bytes = cache_bytes
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}
        self._held = 0

    def count(self, text: str) -> int:
        """Return the number of o200k tokens; text that looks like a control token is ordinary text.

        Texts over 64 kB are counted in slices of 16,384 characters, which may add a token at each seam.
        """
        tokens = self._young.get(text)
        if tokens is None:
            tokens = self._old.get(text)
            if tokens is None:
                tokens = self._measure(text)
            self._remember(text, tokens)
        return tokens

    def _remember(self, text: str, tokens: int) -> None:
        size = sys.getsizeof(text) + ENTRY_BYTES
        if size > self._cache_bytes:
            return
        self._held += size
        if self._held > self._cache_bytes:
            self._old, self._young, self._held = self._young, {}, size
        self._young[text] = tokens

    def _measure(self, text: str) -> int:
        if len(text) <= SLICE_CHARACTERS or len(text.encode(errors="replace")) <= WHOLE_BYTES:
            return self._encode(text)
        starts = range(0, len(text), SLICE_CHARACTERS)
        return sum(self._encode(text[start : start + SLICE_CHARACTERS]) for start in starts)

    def _encode(self, text: str) -> int:
        try:
            return len(self._encoding.encode_ordinary(text))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  the encoder is native code: its panics are no subclass of Exception
            return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def load_encoding() -> tiktoken.Encoding:
    """Build o200k from the encoding file that the litellm package carries; nothing is imported or downloaded.

    Raises:
        EncodingUnavailable: the file is missing or its checksum is another.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        raise EncodingUnavailable("The litellm package, which carries the o200k encoding file, is not installed.")
    path = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers" / ENCODING_FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EncodingUnavailable(f"The o200k encoding file cannot be read: {error.strerror}.") from error
    return build_encoding(content)


def build_encoding(content: bytes) -> tiktoken.Encoding:
    """Build o200k from the file's content: one `base64 rank` a line.

    Raises:
        EncodingUnavailable: the content is not the published one.
    """
    if hashlib.sha256(content).hexdigest() != ENCODING_SHA256:
        raise EncodingUnavailable("The o200k encoding file of the litellm package is not the published one.")
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}
    # No special tokens: their text is counted as the ordinary text it is.
    encoding = tiktoken.Encoding("o200k", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoder has its own copy; this one, kept for looking up single tokens, takes 27 MB
    return encoding
