"""Keep only the newest iterations, whatever they weigh; asks no model and remembers nothing.

1. The last `keep_last` iterations stay, and what comes after them; the rest goes. It acts on every request, whether a
   limit is exceeded or not.
2. The cut falls where `transom.policies.iterations` lets it fall; what is protected stays.
3. Once a cut is made, what the client broke goes as well.
4. The result is a view of its own each time, never the beginning of later ones.
"""

from transom.policies.iterations import cut_place, kept_iterations, removable
from transom.policies.protection import Protection
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged


class Count:
    """The `count` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Cut before the last `keep_last` iterations."""
        history, view, keep = request.history, request.view, request.policy.keep_last
        found = kept_iterations(history, view)
        if len(found) <= keep:
            return unchanged(request)
        guard = Protection(history, request.policy)
        place = cut_place(history, found[-keep])
        removed = [p for g in removable(history, view, guard) if g.members[0] < place for p in g.members]
        if not removed:
            return unchanged(request)
        return TrimResult(view.without(removed, guard.broken()), trimmed=True, persist=False)
