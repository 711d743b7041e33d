"""A thread as one value: its preamble, its messages, their outline and running sums; append-only, nothing edits it."""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

from transom.policies.items import Message
from transom.policies.turns import Outline


class History:
    """All messages of a thread, with prefix sums so that any range is measured in constant time.

    Positions count from 0 at the first message after the preamble. Sizes are o200k tokens and items.
    """

    __slots__ = (
        "_items",
        "_tokens",
        "has_media",
        "messages",
        "outline",
        "preamble",
        "preamble_items",
        "preamble_tokens",
    )

    def __init__(self, preamble: Sequence[Message], messages: Iterable[Message] = ()) -> None:
        self.preamble = tuple(preamble)
        self.preamble_tokens = sum(m.tokens for m in self.preamble)
        self.preamble_items = sum(m.items for m in self.preamble)
        self.messages: list[Message] = []
        self.outline = Outline()
        self._tokens = array("Q", (0,))
        self._items = array("Q", (0,))
        self.has_media = any(m.media for m in self.preamble)
        self.extend(messages)

    def __len__(self) -> int:
        return len(self.messages)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages: O(1) each."""
        added = list(messages)
        self.messages += added
        self._tokens.extend(accumulate([m.tokens for m in added], initial=self._tokens.pop()))
        self._items.extend(accumulate([m.items for m in added], initial=self._items.pop()))
        self.has_media = self.has_media or any(m.media for m in added)
        for message in added:
            self.outline.append(message)

    def with_preamble(self, preamble: Sequence[Message]) -> "History":
        """Return the same thread under another preamble; the messages are shared, so extend only the newest one."""
        other = object.__new__(History)
        other.preamble = tuple(preamble)
        other.preamble_tokens = sum(m.tokens for m in other.preamble)
        other.preamble_items = sum(m.items for m in other.preamble)
        other.messages, other.outline = self.messages, self.outline
        other._tokens, other._items = self._tokens, self._items
        other.has_media = self.has_media or any(m.media for m in other.preamble)
        return other

    def tokens(self, first: int, end: int | None = None) -> int:
        """Sum the tokens of the messages at `first <= position < end` (default: to the end)."""
        return self._tokens[len(self.messages) if end is None else end] - self._tokens[first]

    def items(self, first: int, end: int | None = None) -> int:
        """Sum the items of the messages at `first <= position < end` (default: to the end)."""
        return self._items[len(self.messages) if end is None else end] - self._items[first]

    @property
    def total_tokens(self) -> int:
        """Tokens of the preamble and every message."""
        return self.preamble_tokens + self._tokens[-1]

    @property
    def total_items(self) -> int:
        """Items of the preamble and every message."""
        return self.preamble_items + self._items[-1]
