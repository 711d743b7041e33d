"""The demo model's summary: an honest extract of the transcript it was given, nothing rephrased.

Of a record between fence lines (`===== BEGIN …`, `===== END …`) only what stands inside counts; the user's standing
instructions are quoted under the heading that the prompt asks for.
"""

import re
from collections.abc import Callable

from transom.policies.constraints import HEADING

__all__ = ["PROMPT", "extract"]

PROMPT = "You maintain the running summary"
DEFAULT_TOKENS = 400
FENCED = re.compile(r"^=+ BEGIN [^\n]*$\n(.*?)\n^=+ END [^\n]*$", re.MULTILINE | re.DOTALL)
LIMIT = re.compile(r"\bat most ([\d,]+) tokens\b")
QUOTE = re.compile(r'^- "(.+)"$')
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
SPEAKER = re.compile(r"^(?P<who>User|Assistant|System|Developer)(?: \([^)]*\))?: ")
NUMBER = re.compile(r"\d")
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+|\b[A-Z]{2,}\b")
OWN = re.compile(r"\b(?:my|our|user's)\s+[\w' -]{1,40}\s+(?:is|are|was)\b", re.IGNORECASE)
COMMITMENT = re.compile(
    r"\b(?:decid|agree|will\b|must\b|shall\b|promis|prefer|always\b|never\b|deadline|due\b|remember|want|need|chose|plan)",
    re.IGNORECASE,
)
STANDING = re.compile(r"\b(?:always|never|must|do not|don't|from now on)\b", re.IGNORECASE)
SMALL_TALK = re.compile(r"^(?:I was shown \d|I don't know )")


def extract(instruction: str, record: str, most: int | None, count: Callable[[str], int]) -> str:
    """Return sentences of a transcript that say something, in their order.

    Args:
        instruction: the system message; `at most N tokens` in it is obeyed.
        record: what to summarise, a previous summary included.
        most: the request's own output limit in tokens.
        count: tells the tokens of a text.
    """
    said = LIMIT.search(instruction)
    limits = [most, int(said[1].replace(",", "")) if said else None]
    left = min((limit for limit in limits if limit is not None), default=DEFAULT_TOKENS) * 9 // 10
    sentences, quotes = _read("\n\n".join(FENCED.findall(record)) or record)
    left -= count(HEADING) + 1
    kept_quotes = []
    for quote in quotes:
        left -= count(quote) + 5
        if left < 0:
            break
        kept_quotes.append(f'- "{quote}"')
    kept = []
    for place, sentence in sorted(enumerate(sentences), key=lambda item: -_weight(item[1])):
        tokens = count(sentence) + 1
        if _weight(sentence) and tokens <= left:
            left -= tokens
            kept.append((place, sentence))
    body = "\n".join(sentence for _, sentence in sorted(kept)) or "Nothing of note."
    return "\n".join([body, "", HEADING, *kept_quotes]) if kept_quotes else body


def _read(record: str) -> tuple[list[str], list[str]]:
    """Return the sentences, and the quotes that are standing instructions of the user, each once."""
    sentences: dict[str, None] = {}
    quotes: dict[str, None] = {}
    user = False
    for part in SENTENCE.split(record):
        line = part.strip()
        quoted = QUOTE.match(line)
        if quoted:
            quotes[quoted[1]] = None
        elif line and line != HEADING:
            speaker = SPEAKER.match(line)
            user = speaker["who"] == "User" if speaker else user and not line.startswith("Tool result")
            plain = line[speaker.end() :] if speaker else line
            if user and STANDING.search(plain):
                quotes[plain] = None
            elif not SMALL_TALK.match(plain):
                sentences[line] = None
    return list(sentences), list(quotes)


def _weight(sentence: str) -> int:
    """Tell how much a sentence says: a fact of the user's most, then commitments, numbers, names."""
    return (
        4 * bool(OWN.search(sentence))
        + 2 * bool(COMMITMENT.search(sentence))
        + bool(NUMBER.search(sentence))
        + bool(NAME.search(sentence))
    )
