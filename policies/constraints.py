"""Keep the user's own constraints verbatim through every fold, by code and not by a model's good will.

A summariser is asked to end with a section of quotes. Each quote is checked to be a literal part of something the user
said; those that are stay, word for word, through all later folds; those that are not are dropped.
"""

import re
from collections.abc import Callable, Iterable, Sequence

HEADING = "User constraints (verbatim):"
_HEADING = re.compile(r"^[ \t#*_]*user constraints(?: \(verbatim\))?[ \t*_]*:?[ \t*_]*$", re.IGNORECASE | re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_MARKS = {'"': '"', "“": "”", "'": "'", "«": "»", "`": "`"}
SHORTEST = 8  # characters: shorter quotes say nothing by themselves


def split_constraints(text: str) -> tuple[str, list[str]]:
    """Split a summariser's answer into its body and the quotes of its last constraints section."""
    headings = list(_HEADING.finditer(text))
    if not headings:
        return text.strip(), []
    heading = headings[-1]
    quotes: list[str] = []
    lines = text[heading.end() :].split("\n")
    rest = len(lines)
    for number, line in enumerate(lines):
        quote = _QUOTE.fullmatch(line)
        if quote:
            quotes.append(_unquoted(quote.group(1)))
        elif line.strip():
            rest = number  # what comes after the list belongs to the summary again
            break
    body = "\n".join([text[: heading.start()].strip(), *lines[rest:]]).strip()
    return body, [q for q in quotes if len(q) >= SHORTEST]


def _unquoted(line: str) -> str:
    closing = _MARKS.get(line[0])
    return line[1:-1].strip() if closing and len(line) > 1 and line.endswith(closing) else line


def verified(quotes: Iterable[str], said: Sequence[str]) -> list[str]:
    """Return the quotes that are literally part of what the user said."""
    return [q for q in quotes if any(q in text for text in said)]


def merged(old: Sequence[str], new: Iterable[str], count: Callable[[str], int], most_tokens: int) -> tuple[str, ...]:
    """Append what is new, then drop the oldest until the list holds at most `most_tokens` o200k tokens."""
    quotes = list(old)
    for quote in new:
        if not any(quote in known for known in quotes):
            quotes = [known for known in quotes if known not in quote]
            quotes.append(quote)
    kept: list[str] = []
    left = most_tokens
    for quote in reversed(quotes):
        tokens = count(quote) + 4
        if tokens > most_tokens:
            continue  # alone more than all may be: it must not take the others with it
        left -= tokens
        if left < 0:
            break
        kept.append(quote)
    return tuple(reversed(kept))


def section(quotes: Sequence[str]) -> str:
    """Write the section that ends a summary; empty without quotes."""
    return "\n".join([HEADING, *(f'- "{q}"' for q in quotes)]) if quotes else ""
