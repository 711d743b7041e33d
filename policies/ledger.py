"""Keep the identifiers that an agent needs again in sight, by code and not by a model's good will; asks no model.

Ids, codes, file names and the names of things are what a window loses first: a summary says that a booking was changed,
and the next call needs its number. So the values of what was folded are listed beside the summary.

1. From a tool call come its arguments, where they are JSON: strings and numbers, at any depth. A value counts when it
   could be typed into a later call: an identifier, or a name of a few words. Sentences, flags and short numbers do not.
2. From a text (a tool result, a user message) come its first `MOST_OF_A_TEXT` words that join letters and digits,
   addresses and paths; not moments and quantities (`10am`), and of one form no more than `MOST_ALIKE`: a long listing
   of one kind of thing drives nothing else out.
3. A value is listed once: under the name of the argument that held it last, or among those that were only seen.
4. The newest come first. Values of calls and values only seen get half the room each, and what the others leave; older
   ones give way before newer, and a name as if `NAMES_BEHIND` more values had been used since.
5. Values that differ in their numbers only, each higher than the one before, are a count: of messages, lines, pages. Of
   a count the newest `MOST_ALIKE` are listed. What one call or text names together is a choice, and no count.
6. What the summary's own text tells is not listed beside it and takes no room. It is remembered all the same: the next
   text may leave it out.
7. The section is one line: the names of arguments, each with its values, then what was only seen.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise

from transom.policies.items import Call

HEADING = "Identifiers, newest first:"
SEEN = "mentioned"
LONGEST = 64  # characters of a value
SHORTEST = 3
MOST_WORDS = 4
MOST_OF_A_TEXT = 12
MOST_ALIKE = 4
NAMES_BEHIND = 10
SEARCHED = 32_768  # characters of a call's arguments, or of a text, that are looked at
DEEPEST = 8  # levels of arguments that are looked at
SEPARATOR_TOKENS = 2

_WORD = re.compile(r"https?://[^\s\"'<>()\[\]{}]+|[\w@./:#+\\-]+")
_WORD_BACKWARDS = re.compile(r"[\w@./:#+\\-]*")
_MARK = re.compile(r"[\d@/\\]")  # each telling word holds one of these
_ASCII_MARKS = bytes(chr(code).isdigit() or chr(code) in "@/\\" for code in range(256))  # 1 for a mark, else 0
_BEFORE, _BEHIND = ":-#+", ".,:;-#+"  # what stands at the edges of a word without being part of it
_TELLING = re.compile(r"[\d@]|^[/\\]|[/\\].*[/\\.]|\..*[/\\]")  # a digit, an address, or a path: `and/or` is none
_LETTER = re.compile(r"[^\W\d_]")
_DIGIT = re.compile(r"\d")
_DIGITS, _LETTERS = re.compile(r"\d+"), re.compile(r"[^\W\d_]+")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+-]*Z?")
_QUANTITY = re.compile(r"\d{1,4}-?[a-z]{1,6}")


def is_code(text: str) -> bool:
    """Tell whether a word is an id or code (letters and digits), an address or a path."""
    return bool(_TELLING.search(text) and _LETTER.search(text)) and not (
        _MOMENT.fullmatch(text) or _QUANTITY.fullmatch(text)
    )


def is_number(text: str) -> bool:
    """Tell whether a word is a number, date or time of at least three digits."""
    return (len(_DIGIT.findall(text)) >= 3 and not _LETTER.search(text)) or bool(_MOMENT.fullmatch(text))


def identifiers(text: str) -> Iterator[str]:
    """Yield the distinct identifiers of a text in the order they appear, long numbers and dates after all others."""
    found = list(_telling(text))
    yield from filter(is_code, found)
    yield from filter(is_number, found)


def _telling(text: str) -> Iterator[str]:
    """Yield the distinct words of fitting length that may be identifiers, without what stands at their edges."""
    met = set()
    for found in _marked(text):
        word = found.lstrip(_BEFORE).rstrip(_BEHIND)
        if SHORTEST <= len(word) <= LONGEST and word not in met and _TELLING.search(word):
            met.add(word)
            yield word


def _marked(text: str) -> Iterator[str]:
    """Yield the words that hold a mark: few of a text, so that all others are stepped over without a look."""
    next_mark = _marks(text)
    end = 0
    while (place := next_mark(end)) >= 0:
        before = _WORD_BACKWARDS.match(text[end:place][::-1])
        assert before is not None
        word = _WORD.match(text, place - before.end())
        assert word is not None  # a mark is part of a word
        end = word.end()
        yield word[0]


def _marks(text: str) -> Callable[[int], int]:
    """Return what finds the first mark from a place on, or -1; in ASCII, as most texts are, at the speed of memory."""
    if text.isascii():
        return partial(text.encode().translate(_ASCII_MARKS).find, 1)

    def find(start: int) -> int:
        found = _MARK.search(text, start)
        return found.start() if found else -1

    return find


def merged(
    old: Sequence[str], folded: Iterable[Call | str], count: Callable[[str], int], most_tokens: int, told: str = ""
) -> tuple[str, ...]:
    """Add the values of what was newly folded to a list, and return what of it `most_tokens` hold.

    `folded` are calls and texts in thread order; `told` is the summary's text, whose values take no room. An entry is
    `argument=value`, or `=value` where it was only seen; the newest come first.
    """
    newest: dict[str, str] = {}  # value -> argument, the oldest first
    for entry in reversed(old):
        argument, _, value = entry.partition("=")
        newest[value] = argument
    for one in folded:
        for argument, value in _seen(one, newest) if isinstance(one, str) else _used(one):
            newest.pop(value, None)
            newest[value] = argument
    found = _without_counts(list(newest.items())[::-1])
    written = {value for value, _ in found if _is_in(value, told)}
    taken = written | _fitting([f for f in found if f[0] not in written], count, most_tokens)
    return tuple(f"{argument}={value}" for value, argument in found if value in taken)


def section(entries: Sequence[str], told: str = "") -> str:
    """Write the list as one line of a summary, without what its text `told` holds; empty without entries."""
    values: dict[str, list[str]] = {}
    for entry in entries:
        argument, _, value = entry.partition("=")
        if not _is_in(value, told):
            values.setdefault(argument, []).append(value)
    seen = values.pop("", [])
    listed = [f"{argument}: {', '.join(used)}" for argument, used in values.items()]
    listed += [f"{SEEN}: {', '.join(seen)}"] if seen else []
    return f"{HEADING} {'; '.join(listed)}" if listed else ""


def _is_in(value: str, text: str) -> bool:
    """Tell whether a value stands in a text, and not as a part of a longer word."""
    return value in text and bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text))


def _fitting(found: list[tuple[str, str]], count: Callable[[str], int], most_tokens: int) -> set[str]:
    """Choose the values there is room for (rule 4); `found` are values with their arguments, the newest first."""
    called = enumerate(f for f in found if f[1])
    ranked = sorted(called, key=lambda c: c[0] + (0 if _is_identifier(c[1][0]) else NAMES_BEHIND))
    used = [f for _, f in ranked]
    seen = [f for f in found if not f[1]]
    left = most_tokens - count(HEADING) - count(SEEN)
    taken: set[str] = set()
    named = {""}
    for candidates, spared in ((used, left // 2), (seen, 0), (used, 0)):
        for value, argument in candidates:
            need = count(value) + SEPARATOR_TOKENS
            need += 0 if argument in named else count(argument) + SEPARATOR_TOKENS
            if value not in taken and need <= left - spared:
                left -= need
                taken.add(value)
                named.add(argument)
    return taken


def _without_counts(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out all but the newest of each count (rule 5); `found` are values with arguments, the newest first."""
    alike: dict[tuple[str, str], list[str]] = {}
    for value, argument in found:
        alike.setdefault((argument, _DIGITS.sub("0", value)), []).append(value)
    passed = {v for values in alike.values() if _is_count(values) for v in values[MOST_ALIKE:]}
    return [f for f in found if f[0] not in passed]


def _is_count(values: list[str]) -> bool:
    """Tell whether the numbers of values, the newest first, only went up."""
    if len(values) <= MOST_ALIKE:
        return False
    numbers = ([int(digits) for digits in _DIGITS.findall(value)] for value in values)
    return all(newer > older for newer, older in pairwise(numbers))


def _is_identifier(text: str) -> bool:
    return " " not in text and (is_code(text) or is_number(text))


def _seen(text: str, known: dict[str, str]) -> list[tuple[str, str]]:
    """Return the codes of a text that no call has used, backwards: what a text names first counts as newest."""
    codes = islice(_unlike(filter(is_code, _telling(text[:SEARCHED]))), MOST_OF_A_TEXT)
    return [("", w) for w in codes if not known.get(w)][::-1]


def _unlike(words: Iterator[str]) -> Iterator[str]:
    """Leave out what follows the first `MOST_ALIKE` words of one form: a long listing of one kind of thing."""
    first = list(islice(words, MOST_ALIKE))
    yield from first
    met: Counter[str] | None = None  # seldom needed
    for word in words:
        met = Counter(map(_form, first)) if met is None else met
        form = _form(word)
        met[form] += 1
        if met[form] <= MOST_ALIKE:
            yield word


def _form(word: str) -> str:
    return _LETTERS.sub("a", _DIGITS.sub("0", word))


def _used(call: Call) -> list[tuple[str, str]]:
    """Return the values of a call's arguments, backwards: what it names first counts as newest."""
    if len(call.arguments) > SEARCHED:
        return []
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return []
    return list(_leaves(call.name, arguments, DEEPEST))[::-1]


def _leaves(argument: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the values that count (rule 1), each with the name it stands under."""
    if depth and isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(name, inner, depth - 1)
    elif depth and isinstance(value, list):
        for inner in value:
            yield from _leaves(argument, inner, depth - 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value).strip()
        if _counts(text, is_text=isinstance(value, str)):
            yield " ".join(argument.replace("=", " ").split()) or "value", text


def _counts(text: str, *, is_text: bool) -> bool:
    if not SHORTEST <= len(text) <= LONGEST or not text.isprintable():
        return False
    return (is_text and len(text.split()) <= MOST_WORDS) or is_number(text)
