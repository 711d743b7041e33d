"""Split texts of any script into the terms that a search compares; knows no messages and no scores.

1. Texts are compared in NFKC, case folded, without invisible joiners.
2. A run of letters, digits and combining marks is a word; `_` and all punctuation divide words. Of a word of letters
   only the first `STEM` characters count, so that most inflected forms meet; one with digits counts whole.
3. A run of a script that puts no spaces between words (Han, Kana, Thai, Lao, Khmer, Myanmar) gives its bigrams; a
   single sign gives itself.
4. A Hangul word gives itself and its bigrams: particles are written onto the word.
"""

import re
from unicodedata import normalize

STEM = 7  # characters

_UNSPACED = (
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"  # Han and Kana
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u104c-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
)
# `\w` has no combining marks; in these scripts words are full of them.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0971-\u0df3\u0f18-\u0fbc"
    "\u1712-\u1734\u1a17-\u1a7f\u1b00-\u1b44"
)
_HANGUL = "\uac00-\ud7a3"
_TERM = re.compile(f"([{_UNSPACED}]+)|([{_HANGUL}]+)|(?:(?![_{_UNSPACED}{_HANGUL}])[\\w{_MARKS}])+")
_PLAIN = re.compile(r"[a-z0-9]+")
_DIGIT = re.compile(r"\d")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, repetitions included."""
    if text.isascii():
        return [word if len(word) <= STEM else _stem(word) for word in _PLAIN.findall(text.lower())]
    found: list[str] = []
    for match in _TERM.finditer(_INVISIBLE.sub("", normalize("NFKC", text).casefold())):
        run = match.group()
        if match.lastindex is None:
            found.append(_stem(run))
            continue
        if match.lastindex == 2 or len(run) == 1:
            found.append(run)
        if match.lastindex == 1 or len(run) > 2:
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
    return found


def _stem(word: str) -> str:
    return word if _DIGIT.search(word) else word[:STEM]
