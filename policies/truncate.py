"""Remove the oldest unprotected groups until the limits hold; asks no model, forgets without a trace in the view.

1. Nothing is removed while the limits hold, nor for the sake of a limit that protected messages alone exceed.
2. Once a cut is made, what the client broke goes first, and turn 0, which answers nobody.
3. Then groups go oldest first, one at a time, down to `trim_to` of each limit that was exceeded. When the last user
   message of a turn's opening run goes, the rest of the turn goes with it.
4. Then the current turn's own groups, oldest first, also down to `trim_to`, but not the newest
   `keep_recent_iterations`.
5. Then these as well, but only until the limit itself holds.
6. If only protected groups remain, stop.
7. A summary that alone keeps a limit from being held stays away from this view; the next starts with it again.
"""

from collections.abc import Iterator

from transom.policies.history import History
from transom.policies.protection import Protection
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.turns import Group
from transom.policies.view import Size, View


class Truncate:
    """The `truncate` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Cut to the low-water mark if a reachable limit is exceeded."""
        guard = Protection(request.history, request.policy)
        base = guard.base(request.view, request.limits)
        size = base.size(request.history)
        limits = request.limits.reachable(guard.floor(base))
        if limits.hold(request.size):
            return unchanged(request)
        goal = limits.low_water(size, request.policy.trim_to)
        broken = guard.broken()
        removed: set[int] = set()
        size = _less(request.history, base, size, broken)
        for bundle, eager in _victims(request, guard, broken):
            if (goal if eager else limits).hold(size):
                break
            removed.update(bundle)
            size = _less(request.history, base, size, bundle)
        view = base.without(removed, broken)
        return TrimResult(view, trimmed=view != request.view, persist=bool(removed) and base is request.view)


def _less(history: History, view: View, size: Size, gone: "list[int] | frozenset[int]") -> Size:
    tokens, items = size
    for position in gone:
        if view.keeps(position):
            message = history.messages[position]
            substitute = view.substitutes.get(position)
            tokens -= substitute.tokens if substitute else message.tokens
            items -= message.items
    return Size(tokens, items)


def _victims(request: TrimRequest, guard: Protection, broken: frozenset[int]) -> Iterator[tuple[list[int], bool]]:
    """Yield what may go, in the order it goes, and whether it goes for the low-water mark or only for the limit."""
    view, outline = request.view, request.history.outline
    answered = guard.answered(view)
    free = [
        g
        for g in outline.groups
        if not guard.covers(g)
        and view.carrier not in g.members
        and not (g.kind == "user" and g.turn in answered)
        and g.members[0] not in broken
        and any(view.keeps(p) for p in g.members)
    ]
    current = outline.current_turn
    yield from ((bundle, True) for bundle in _old(free, current))
    newest = outline.iterations(current)[-request.policy.keep_recent_iterations :]
    spared = {id(g) for g in newest} if request.policy.keep_recent_iterations else set()
    yield from ((g.members, True) for g in free if g.turn == current and id(g) not in spared)
    yield from ((g.members, False) for g in free if g.turn == current and id(g) in spared)


def _old(free: list[Group], current: int) -> Iterator[list[int]]:
    """Bundle the groups of earlier turns (rule 3)."""
    old = [g for g in free if g.turn < current]
    index = 0
    while index < len(old):
        group, index = old[index], index + 1
        bundle = list(group.members)
        turn_opener = group.kind == "user" and not (index < len(old) and _same_run(old[index], group))
        if turn_opener:
            while index < len(old) and old[index].turn == group.turn:
                bundle += old[index].members
                index += 1
        yield bundle


def _same_run(following: Group, group: Group) -> bool:
    return following.kind == "user" and following.turn == group.turn
