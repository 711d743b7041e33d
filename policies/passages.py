"""Cut messages into passages that a search can rank, and remember them; knows no query and no view.

1. A message's text is what it says, and the names and arguments of its calls.
2. A long text is cut at the end of a line, else of a sentence, else of a word; what is beyond the first `MOST_PASSAGES`
   passages is not searched.
3. What was cut once is remembered by the message's digest, up to so many characters; the least recently used go first.
   Terms and places are remembered, no texts: a quote is always read from the message itself.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from transom.policies.items import Message
from transom.policies.terms import terms

PASSAGE = 800  # characters; a text half as long again is still one passage
MOST_PASSAGES = 64  # of one message
MOST_CHARACTERS = 8_000_000  # of all that is remembered
OVERHEAD = 300  # characters: what one passage costs beside its terms
MASK_BITS = 512

_ENDS = tuple(re.compile(end, re.DOTALL) for end in (r".*\n", r".*(?:[.!?…]\s|[。！？])", r".*\s"))


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a message's text from `start` to `end`, in characters.

    `terms` holds its `length` terms, each between two line ends of its own, so that one is counted by a plain search;
    `mask` has the bit of each of them, which rules most other terms out without one.
    """

    start: int
    end: int
    length: int
    terms: str
    mask: int


def bounded(term: str) -> str:
    """Write a term as passages hold it."""
    return f"\n{term}\n"


def bit(term: str) -> int:
    """Return a term's bit in masks; which one it is differs from process to process, and matters to none."""
    return 1 << hash(term) % MASK_BITS


def full_text(message: Message, content: Callable[[Message], str]) -> str:
    """Return what of a message is searched and quoted (rule 1)."""
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    return "\n".join(text for text in (content(message), *calls) if text)


def split(text: str) -> tuple[Passage, ...]:
    """Cut a text into passages (rule 2)."""
    found: list[Passage] = []
    start = 0
    while start < len(text) and len(found) < MOST_PASSAGES:
        end = len(text)
        if end - start > PASSAGE * 3 // 2:
            end = start + _place(text[start : start + PASSAGE])
        words = terms(text[start:end])
        mask = reduce(or_, map(bit, set(words)), 0)
        found.append(Passage(start, end, len(words), bounded("\n\n".join(words)), mask))
        start = end
    return tuple(found)


def _place(text: str) -> int:
    """Return where a stretch of text ends best, in its second half."""
    for end in _ENDS:
        match = end.match(text)
        if match and match.end() > len(text) // 2:
            return match.end()
    return len(text)


class Passages:
    """The passages of messages met before (rule 3)."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._known: OrderedDict[bytes, tuple[Passage, ...]] = OrderedDict()
        self._most, self._held = most_characters, 0

    def of(self, message: Message, content: Callable[[Message], str]) -> tuple[Passage, ...]:
        """Return a message's passages."""
        found = self._known.get(message.digest)
        if found is not None:
            self._known.move_to_end(message.digest)
            return found
        found = self._known[message.digest] = split(full_text(message, content))
        self._held += _weight(found)
        while self._held > self._most:
            _, oldest = self._known.popitem(last=False)
            self._held -= _weight(oldest)
        return found


def _weight(passages: tuple[Passage, ...]) -> int:
    return OVERHEAD + sum(OVERHEAD + len(passage.terms) for passage in passages)
