"""Remove the oldest iterations until the token limit holds; asks no model, knows no item limit, remembers nothing.

1. Nothing is removed while the token limit holds, nor for the sake of one that protected messages alone exceed.
2. Once a cut is made, what the client broke goes first.
3. Then iterations go oldest first, one at a time, until the limit itself holds: there is no low-water mark. Where each
   cut falls is for `transom.policies.iterations` to say; the last one takes all but what is protected. A summary that
   alone keeps the limit from being held stays away as well.
4. The result is a view of its own each time, never the beginning of later ones.
"""

from transom.policies.history import History
from transom.policies.iterations import cut_place, kept_iterations, removable
from transom.policies.limits import Limits
from transom.policies.protection import Protection
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.view import View


class TokenBudget:
    """The `token_budget` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Cut at the first iteration that leaves few enough tokens."""
        history, view = request.history, request.view
        guard = Protection(history, request.policy)
        limit = Limits(request.limits.tokens)
        base = guard.base(view, limit)
        most = limit.reachable(guard.floor(base)).tokens
        if most is None or request.size.tokens <= most:
            return unchanged(request)
        broken = guard.broken()
        removed = _oldest(history, base, guard, base.without((), broken).size(history).tokens - most)
        shorter = base.without(removed, broken)
        return TrimResult(shorter, trimmed=shorter != view, persist=False)


def _oldest(history: History, view: View, guard: Protection, excess: int) -> list[int]:
    """Return the positions of the oldest iterations that together count at least `excess` tokens (rule 3)."""
    places = [cut_place(history, iteration) for iteration in kept_iterations(history, view)]
    places.append(len(history))
    places.reverse()
    removed: list[int] = []
    reached = -1
    for group in removable(history, view, guard):
        if group.members[0] >= reached:
            if excess <= 0:
                break
            while group.members[0] >= places[-1]:
                places.pop()
            reached = places[-1]
        removed += group.members
        excess -= sum(_tokens(history, view, p) for p in group.members)
    return removed


def _tokens(history: History, view: View, position: int) -> int:
    substitute = view.substitutes.get(position)
    return history.messages[position].tokens if substitute is None else substitute.tokens
