"""Keep the identifiers that an agent needs again in sight, by code and not by a model's good will; asks no model.

Ids, codes, file names and the names of things are what a window loses first: a summary says that a booking was changed,
and the next call needs its number. So the arguments of folded tool calls are listed beside the summary.

1. Values are read from the arguments of tool calls that are JSON: strings and numbers, at any depth.
2. A value counts when it could be typed into a later call: an identifier, or a name of a few words. Sentences, flags and
   short numbers do not.
3. A value is listed once, under the name of the argument that held it last.
4. The newest come first. When there is no room for all, names give way before identifiers and older before newer.
5. The section is one line: the names of arguments, each with its values.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from transom.policies.items import Call

HEADING = "Values used in earlier tool calls, newest first:"
LONGEST = 64  # characters of a value
SHORTEST = 3
MOST_WORDS = 4
DEEPEST = 8  # levels of arguments that are looked at
LONGEST_ARGUMENTS = 32_768  # characters of one call's arguments: longer ones hold documents
SEPARATOR_TOKENS = 2

_WORD = re.compile(r"[\w@./:#+\\-]+")
_EDGES = ".:-/#+\\"


def is_code(text: str) -> bool:
    """Tell whether a word is an id or code (letters and digits), an address or a path."""
    if "@" in text or "/" in text or "\\" in text:
        return any(c.isalnum() for c in text)
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def is_number(text: str) -> bool:
    """Tell whether a word is a number, date or time of at least three digits."""
    return sum(c.isdigit() for c in text) >= 3 and not any(c.isalpha() for c in text)


def identifiers(text: str) -> Iterator[str]:
    """Yield the distinct identifiers of a text in the order they appear, long numbers and dates after all others."""
    words = dict.fromkeys(w.strip(_EDGES) for w in _WORD.findall(text))
    fitting = [w for w in words if SHORTEST <= len(w) <= LONGEST]
    yield from (w for w in fitting if is_code(w))
    yield from (w for w in fitting if is_number(w))


def merged(
    old: Sequence[str], calls: Iterable[Call], count: Callable[[str], int], most_tokens: int
) -> tuple[str, ...]:
    """Add the values of newly folded calls, given in thread order, to a list; return at most `most_tokens` of it.

    An entry is `argument=value`; the newest come first.
    """
    newest: dict[str, str] = {}  # value -> argument, the oldest first
    for entry in reversed(old):
        argument, _, value = entry.partition("=")
        newest[value] = argument
    for call in calls:
        for argument, value in _values(call):
            newest.pop(value, None)
            newest[value] = argument
    found = list(newest.items())[::-1]
    left = most_tokens - count(HEADING)
    taken: set[str] = set()
    named: set[str] = set()
    for value, argument in sorted(found, key=lambda f: not _is_identifier(f[0])):
        need = count(value) + SEPARATOR_TOKENS
        need += 0 if argument in named else count(argument) + SEPARATOR_TOKENS
        if need <= left:
            left -= need
            taken.add(value)
            named.add(argument)
    return tuple(f"{argument}={value}" for value, argument in found if value in taken)


def section(entries: Sequence[str]) -> str:
    """Write the list as one line of a summary; empty without entries."""
    values: dict[str, list[str]] = {}
    for entry in entries:
        argument, _, value = entry.partition("=")
        values.setdefault(argument, []).append(value)
    listed = "; ".join(f"{argument}: {', '.join(found)}" for argument, found in values.items())
    return f"{HEADING} {listed}" if listed else ""


def _is_identifier(text: str) -> bool:
    return " " not in text and (is_code(text) or is_number(text))


def _values(call: Call) -> Iterator[tuple[str, str]]:
    if len(call.arguments) > LONGEST_ARGUMENTS:
        return
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return
    yield from _leaves(call.name, arguments, DEEPEST)


def _leaves(argument: str, value: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the values that count (rule 2), each with the name it stands under."""
    if depth and isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(name, inner, depth - 1)
    elif depth and isinstance(value, list):
        for inner in value:
            yield from _leaves(argument, inner, depth - 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value).strip()
        if _counts(text, is_text=isinstance(value, str)):
            yield argument.replace("=", "_"), text


def _counts(text: str, *, is_text: bool) -> bool:
    if not SHORTEST <= len(text) <= LONGEST or not text.isprintable():
        return False
    return (is_text and len(text.split()) <= MOST_WORDS) or is_number(text)
