"""What is never removed from a view; the list stands in one place, so that no trimmer has its own idea of it.

Protected are the preamble and the summary (they are not groups, so no trimmer can touch them), the user messages
pinned by `keep_first_turns`, the last user message, every open group, the group of the last message, and later system
and developer messages unless `mid_system: ordinary`.

The summary alone is of our own making, and a request must not fail for what we add to it: where a limit is out of reach
for the summary's sake only, it stays away from that one view (`Protection.base`).
"""

from collections.abc import Iterator
from dataclasses import replace

from transom.policies.history import History
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.turns import Group
from transom.policies.view import Size, View


class Protection:
    """Answer, for one thread and policy, which groups must stay."""

    def __init__(self, history: History, policy: Policy) -> None:
        self._outline = history.outline
        self._history = history
        self._keep_system = policy.mid_system == "keep"
        self._pinned_turns = policy.keep_first_turns
        self._last = self._outline.owner[-1] if self._outline.owner else None

    def covers(self, group: Group) -> bool:
        """Tell whether the group must stay."""
        outline = self._outline
        first = group.members[0]
        if group.kind == "user":
            return first == outline.last_user or 1 <= group.turn <= self._pinned_turns
        if group.kind == "system":
            return self._keep_system or self._is_last(group)
        return self._is_last(group) or outline.is_open(group)

    def _is_last(self, group: Group) -> bool:
        # An orphan at the very end stays as well: the last message is the request's own.
        return self._last is not None and self._outline.groups[self._last] is group

    def broken(self) -> frozenset[int]:
        """Return the positions that a cut drops before all others, protected ones left out.

        They are what the client broke the pairing of, and turn 0 once somebody has spoken: it answers nobody, and a
        window begins with a question.
        """
        outline = self._outline
        found = {p for p in outline.broken() if not self.covers(outline.groups[outline.owner[p]])}
        first = outline.turn_starts[0] if outline.turn_starts else 0
        for position in range(first):
            group = outline.groups[outline.owner[position]]
            if not self.covers(group):
                found.update(group.members)
        return frozenset(found)

    def pinned(self) -> list[int]:
        """Return the positions of the user messages that `keep_first_turns` pins."""
        found: list[int] = []
        if self._pinned_turns:
            for group in self._outline.groups:
                if group.turn > self._pinned_turns:
                    break
                if group.kind == "user":
                    found.append(group.members[0])
        return found

    def fixed(self, view: View) -> int:
        """Return the tokens of the preamble and of the pinned messages that a view keeps."""
        pinned = (self._history.messages[p].tokens for p in self.pinned() if view.keeps(p))
        return self._history.preamble_tokens + sum(pinned)

    def positions(self, end: int | None = None) -> list[int]:
        """Return the positions of protected messages before `end`, ascending."""
        limit = len(self._history) if end is None else end
        return sorted({p for group in self._protected() for p in group.members if p < limit})

    def _protected(self) -> Iterator[Group]:
        """Yield the groups that `covers` tells of, found without a look at all the others; some come twice."""
        outline = self._outline
        if self._last is not None:
            yield outline.groups[self._last]  # a group that is open is the last message's
        if outline.last_user is not None:
            yield outline.groups[outline.owner[outline.last_user]]
        if self._keep_system:
            yield from outline.systems()
        for position in self.pinned():
            yield outline.groups[outline.owner[position]]

    def floor(self, view: View) -> Size:
        """Measure the smallest view a cut could reach: the preamble, the summary and what is protected."""
        return self.bare(view) + view.summary_size

    def bare(self, view: View) -> Size:
        """Measure the same without the summary."""
        history = self._history
        tokens, items = history.preamble_tokens, history.preamble_items
        for position in self.positions():
            if view.keeps(position):
                substitute = view.substitutes.get(position)
                tokens += substitute.tokens if substitute else history.messages[position].tokens
                items += history.messages[position].items
        return Size(tokens, items)

    def base(self, view: View, limits: Limits) -> View:
        """Return what a cut starts from: the view, less its summary where that alone puts a limit out of reach."""
        if view.summary_message is None:
            return view
        least = self.bare(view) + self._questions(view)
        within_reach = limits.reachable(least) == limits.reachable(least + view.summary_size)
        return view if within_reach else view.without_summary()

    def answered(self, view: View) -> set[int]:
        """Return the turns that keep their user messages, for an answer stays: a window opens on none alone."""
        groups = self._outline.groups
        return {g.turn for g in groups if g.is_iteration and (self.covers(g) or view.carrier in g.members)}

    def _questions(self, view: View) -> Size:
        """Measure the unprotected user messages that answered turns keep."""
        answered, size = self.answered(view), Size(0, 0)
        for group in self._outline.groups:
            position = group.members[0]
            if group.kind == "user" and group.turn in answered and not self.covers(group) and view.keeps(position):
                message = self._history.messages[position]
                size += Size(message.tokens, message.items)
        return size


def settled(history: History, guard: Protection, view: View) -> View:
    """Return a remembered view as a later request can send it.

    What the client broke since is left out, and so is what is left of a group that was cut before its last result came.
    Protected messages stand again, whoever made the view: under another policy they may not have been protected.
    """
    outline = history.outline
    torn = {p for g in outline.scattered() if not all(map(view.keeps, g.members)) for p in g.members if view.keeps(p)}
    gone = guard.broken() | torn
    if gone:
        view = view.without((), gone)
    missing = [p for p in guard.positions(view.start) if not view.keeps(p)]
    return replace(view, head=tuple(sorted({*view.head, *missing}))) if missing else view
