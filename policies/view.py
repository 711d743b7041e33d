"""What is sent of a thread, as positions and never as copies; knows no wire format."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from transom.policies.history import History

NOTHING: Mapping[int, "Substitute"] = MappingProxyType({})


class Size(NamedTuple):
    """How large a view is: o200k tokens (4 a message included) and items."""

    tokens: int
    items: int

    def __add__(self, other: object) -> "Size":
        if not isinstance(other, Size):
            return NotImplemented
        return Size(self.tokens + other.tokens, self.items + other.items)


@dataclass(frozen=True, slots=True)
class Summary:
    """The one durable summary of a thread's beginning.

    `text` is the message's whole content, label included; `tokens` counts the message; every message at a position
    before `upto` is summarised by it, kept verbatim beside it, or was summarised by its predecessor.
    """

    id: bytes
    text: str
    tokens: int
    upto: int


@dataclass(frozen=True, slots=True)
class Substitute:
    """New text for a kept message's content; all its other fields stay. `tokens` counts the message with it."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """Cut messages brought back for one user turn: a message of its own right before the one at `before`."""

    text: str
    tokens: int
    before: int


@dataclass(frozen=True, slots=True)
class View:
    """The preamble, at most one summary, the messages in `head`, then all from `start` on but those `omitted`.

    `head` holds ascending positions before `start`; `omitted` positions at or after it (what the client broke).
    The summary is a message of its own after the preamble, unless a kept message is its `carrier`: then it stands in
    that message's place, as a substitute. `owed` are positions before `summary.upto` that stood beside the summary and
    were cut later: no summary holds them yet.
    """

    start: int = 0
    head: tuple[int, ...] = ()
    summary: Summary | None = None
    omitted: frozenset[int] = frozenset()
    substitutes: Mapping[int, Substitute] = field(default_factory=lambda: NOTHING)
    carrier: int | None = None
    recalled: Recalled | None = None
    owed: frozenset[int] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether the view is the history as it is."""
        return not (self.start or self.summary or self.omitted or self.substitutes or self.recalled)

    @property
    def reach(self) -> int:
        """How many leading messages of a thread the view depends on: it holds for every thread that shares them."""
        return max(self.start, 1 + max(self.substitutes, default=-1), 1 + max(self.omitted, default=-1))

    @property
    def summary_size(self) -> Size:
        """What the summary adds to the view, where it is a message of its own."""
        return Size(0, 0) if self.summary_message is None else Size(self.summary_message.tokens, 1)

    def baseline(self) -> "View":
        """Return what of this view later requests start from: not what was broken, or recalled, in this one alone."""
        return replace(self, omitted=frozenset(), recalled=None)

    @property
    def summary_message(self) -> Summary | None:
        """The summary, where it is a message of its own."""
        return self.summary if self.carrier is None else None

    def positions(self, length: int) -> Iterator[int]:
        """Yield the kept positions of a thread of `length` messages, in order."""
        yield from self.head
        if self.omitted:
            yield from (p for p in range(self.start, length) if p not in self.omitted)
        else:
            yield from range(self.start, length)

    def keeps(self, position: int) -> bool:
        """Tell whether the message at this position is sent."""
        return position not in self.omitted if position >= self.start else position in self.head

    def size(self, history: History) -> Size:
        """Measure the view: O(head + omitted + substitutes), whatever the length of the history."""
        tokens = history.preamble_tokens + history.tokens(self.start)
        items = history.preamble_items + history.items(self.start)
        for position in self.head:
            tokens += history.messages[position].tokens
            items += history.messages[position].items
        for position in self.omitted:
            tokens -= history.messages[position].tokens
            items -= history.messages[position].items
        for position, substitute in self.substitutes.items():
            tokens += substitute.tokens - history.messages[position].tokens
        if self.recalled is not None:
            tokens += self.recalled.tokens
            items += 1
        return Size(tokens, items) + self.summary_size

    def without(self, removed: Iterable[int], broken: Collection[int]) -> "View":
        """Return this view less the messages at the `removed` and `broken` positions.

        Dropping broken messages alone leaves `start` where it is: nothing that stands before them moves.
        """
        cut = {p for p in removed if p not in broken}
        gone = {*cut, *(p for p in broken if self.keeps(p))}
        start = max([self.start, *(p + 1 for p in cut)])
        head = tuple(p for p in self._before(start) if p not in gone)
        omitted = frozenset(p for p in self.omitted | gone if p >= start)
        stay = {p: s for p, s in self.substitutes.items() if p not in gone}
        upto = self.summary.upto if self.summary is not None else 0
        carrier = None if self.carrier in gone else self.carrier
        summary = self.summary if carrier == self.carrier else None
        return replace(
            self,
            start=start,
            head=head,
            omitted=omitted,
            substitutes=MappingProxyType(stay),
            carrier=carrier,
            summary=summary,
            owed=self.owed | {p for p in cut if p < upto},
        )

    def without_summary(self) -> "View":
        """Return this view without its summary message; a summary that a kept message carries stays."""
        return self if self.summary_message is None else replace(self, summary=None, owed=frozenset())

    def substituted(self, texts: Mapping[int, Substitute]) -> "View":
        """Return this view with new texts in place of some kept messages' contents."""
        return replace(self, substitutes=MappingProxyType({**self.substitutes, **texts}))

    def folded(self, summary: Summary, kept: Iterable[int], broken: Collection[int]) -> "View":
        """Return this view with all before `summary.upto` replaced by the summary, but the `kept` positions."""
        start = max(self.start, summary.upto)
        head = {*(p for p in kept if p < start), *(p for p in self.head if p >= summary.upto)} - set(broken)
        omitted = frozenset(p for p in {*self.omitted, *broken} if p >= start)
        stay = {p: s for p, s in self.substitutes.items() if p >= start or p in head}
        return View(start, tuple(sorted(head)), summary, omitted, MappingProxyType(stay))

    def _before(self, end: int) -> Iterator[int]:
        yield from (p for p in self.positions(end) if p < end)


WHOLE = View()
"""The history as it is."""
