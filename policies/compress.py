"""Fold what is old into the one summary; decides what is folded and leaves the writing of the summary to others.

`keep_verbatim: turns` folds everything before the last `keep_recent_turns` turns at once. `fill` folds just enough,
oldest first, to come down to `trim_to`: old turns, then older kept turns, then the current turn's own iterations but
the newest `keep_recent_iterations`. What is folded is always one run from the start; protected messages in it stay
where they are, in order. Messages that an earlier cut removed without a summary are folded with the rest, so that no
text is lost that a summary could have kept.

No fold is made that would leave the conversation little room, or exceed the limit with what is protected. And `fill`
puts a fold off while it takes little beside large pinned messages: a new summary stands in front of them, so that all
of them is read anew at full price. The next trimmer cuts meanwhile, and the fold that comes takes that along.
"""

from bisect import bisect_left
from collections.abc import Iterator

from transom.policies.history import History
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.protection import Protection
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.view import Size, Summary, View

LARGEST_FIXED_SHARE = 0.75  # of the token limit: preamble, what stays beside the summary, and one of its allowed size
SMALL_SHARE = 0.125  # of the token limit: pinned messages that are read anew for little
WORTH_MOVING = 6  # what a fold takes, for each pinned token that has to be read anew behind the new summary


class Compress:
    """The `compress` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Fold if a reachable limit is exceeded and there is something old to fold."""
        guard = Protection(request.history, request.policy)
        limits = request.limits.reachable(guard.floor(request.view))
        if limits.hold(request.size):
            return unchanged(request)
        upto = fold_boundary(request, guard, limits)
        if upto is None:
            return unchanged(request)
        kept = stays(request, guard, upto)
        span = foldable(request.view, kept, upto)
        if not span or not _worthwhile(request, guard, limits, span, kept):
            return unchanged(request)
        broken = guard.broken()

        def placed(summary: Summary) -> View:
            return request.view.folded(summary, kept, broken)

        summary = await request.summarize(span, upto, placed)
        if summary is None:
            return unchanged(request)
        return TrimResult(placed(summary), trimmed=True, persist=True)


def fold_boundary(request: TrimRequest, guard: Protection, limits: Limits) -> int | None:
    """Return the position up to which the thread is folded, or None if nothing is old enough."""
    starts = request.history.outline.turn_starts
    keep = request.policy.keep_recent_turns
    already = request.view.summary.upto if request.view.summary else 0
    if request.policy.keep_verbatim == "turns":
        upto = _whole(request.history, starts[-keep]) if len(starts) > keep else None
        return upto if upto is not None and upto > already else None
    places = [p for p in _fill_places(request) if p > already]
    if not places:
        return None
    goal = limits.low_water(request.size, request.policy.trim_to)
    # The later the place, the smaller what is left: the first that is small enough is found by halving.
    first = bisect_left(places, True, key=lambda upto: goal.hold(_size_after(request, guard, upto)))
    return _whole(request.history, places[min(first, len(places) - 1)])


def _whole(history: History, upto: int) -> int | None:
    """Move a place back before the turn of each group of an earlier turn that reaches beyond it.

    The group stays whole, and so does its question: a window never opens on an answer.
    """
    outline = history.outline
    moved = True
    while moved and upto > 0:
        moved = False
        for group in outline.scattered():
            if group.turn < outline.current_turn and group.members[0] < upto <= group.members[-1]:
                upto, moved = (outline.turn_starts[group.turn - 1] if group.turn else 0), True
    return upto or None


def _fill_places(request: TrimRequest) -> Iterator[int]:
    """Yield the places a fold may end at, oldest first."""
    outline, keep = request.history.outline, request.policy.keep_recent_iterations
    yield from (start for start in outline.turn_starts if start > 0)
    rounds = outline.iterations(outline.current_turn)
    closed = rounds[: max(0, len(rounds) - keep)]
    yield from (following.members[0] for following in rounds[1 : len(closed) + 1])
    if keep == 0 and rounds and not outline.is_open(rounds[-1]):
        yield rounds[-1].members[-1] + 1


def _size_after(request: TrimRequest, guard: Protection, upto: int) -> Size:
    history, view = request.history, request.view
    start = max(upto, view.start)
    tokens = history.preamble_tokens + request.summary_tokens + history.tokens(start)
    items = history.preamble_items + 1 + history.items(start)
    kept = {*stays(request, guard, upto), *(p for p in view.head if p >= upto)}
    for position in kept:
        tokens += history.messages[position].tokens
        items += history.messages[position].items
    for position, substitute in view.substitutes.items():
        if position >= start or position in kept:
            tokens += substitute.tokens - history.messages[position].tokens
    return Size(tokens, items)


def stays(request: TrimRequest, guard: Protection, upto: int) -> list[int]:
    """Return the kept positions before `upto` that no fold takes: protected ones, and groups that reach beyond it."""
    found = set(guard.positions(upto))
    for group in request.history.outline.scattered():
        if group.members[0] < upto <= group.members[-1]:
            found.update(p for p in group.members if p < upto)
    return sorted(p for p in found if request.view.keeps(p))


def foldable(view: View, kept: list[int], upto: int) -> list[int]:
    """Return the positions a fold takes: all before `upto` that the present summary does not stand for already."""
    already = view.summary.upto if view.summary else 0
    left = sorted({p for p in (*view.positions(already), *view.owed) if p < already})
    keep = set(kept)
    return [p for p in (*left, *range(already, upto)) if p < upto and p not in keep]


def _worthwhile(request: TrimRequest, guard: Protection, limits: Limits, span: list[int], kept: list[int]) -> bool:
    """Refuse a fold that would leave too little of the limit, or that takes too little for its price."""
    if limits.tokens is None:
        return True
    history, summary = request.history, request.summary_tokens
    pinned = [p for p in guard.pinned() if request.view.keeps(p)]
    beside = sum(history.messages[p].tokens for p in {*kept, *pinned})
    if history.preamble_tokens + beside + summary > LARGEST_FIXED_SHARE * limits.tokens:
        return False
    if guard.bare(request.view).tokens + summary > limits.tokens:
        return False
    moved = sum(history.messages[p].tokens for p in pinned)
    if moved <= SMALL_SHARE * limits.tokens or not _may_wait(request.policy):
        return True
    return sum(history.messages[p].tokens for p in span) >= WORTH_MOVING * moved


def _may_wait(policy: Policy) -> bool:
    """Tell whether a fold may be put off: another trimmer cuts meanwhile, and no number of turns is to be kept."""
    return policy.keep_verbatim == "fill" and "truncate" in policy.trimmers
