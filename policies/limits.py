"""The limits one request is held to, and what it means to exceed, reach and leave them out."""

from dataclasses import dataclass

from transom.policies.view import Size


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a view may hold: o200k tokens of messages (preamble and summary included) and items; None = no limit."""

    tokens: int | None = None
    items: int | None = None

    def hold(self, size: Size) -> bool:
        """Tell whether a view of this size is within every limit."""
        return not (
            (self.tokens is not None and size.tokens > self.tokens)
            or (self.items is not None and size.items > self.items)
        )

    def over_tokens(self, size: Size) -> bool:
        """Tell whether the token limit is exceeded."""
        return self.tokens is not None and size.tokens > self.tokens

    def scaled(self, share: float) -> "Limits":
        """Return `share` of each limit."""
        return Limits(*(None if limit is None else int(limit * share) for limit in (self.tokens, self.items)))

    def reachable(self, floor: Size) -> "Limits":
        """Leave out each limit that what is never removed exceeds alone: no cut could make it hold."""
        return Limits(
            None if self.over_tokens(floor) else self.tokens,
            None if self.items is not None and floor.items > self.items else self.items,
        )

    def low_water(self, size: Size, share: float) -> "Limits":
        """Return what a cut goes down to: `share` of each limit that `size` exceeds, the others as they are."""
        tokens, items = self.tokens, self.items
        if tokens is not None and size.tokens > tokens:
            tokens = int(tokens * share)
        if items is not None and size.items > items:
            items = int(items * share)
        return Limits(tokens, items)
