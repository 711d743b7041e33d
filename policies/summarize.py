"""Fold what is old into the earliest iteration in place, so that no message is added; leaves the writing to others.

1. It acts over the token limit only, and when there are more than `keep_last` iterations; the newest `keep_last` stay.
2. The earliest iteration that answers a user carries the summary: its first tool result's content becomes the summary
   (id, name and all other fields stay), that of its other results `[folded into the result above]`. An iteration
   without tools carries it as its answer's content. The user messages that opened its turn stay before it.
3. All between the carrier and the newest iterations is folded, the carrier's own results with it; protected messages
   stay where they are, in order. What the client broke goes.
4. The newest iterations begin with a user message: the cut moves on to the next one, but within the carrier's turn,
   whose user message stays, and within the current turn.
5. Where no iteration follows the next user message, the last of the old iterations carries the summary: it belongs to
   the same turn as the newest ones, so their user message stays before all of them.
6. A later fold takes the summary along, into the same carrier or another; there is never more than one.
7. A fold is made only if it leaves a quarter of the limit to go on with, or takes enough that a call is worth it: no
   thread is folded on every request.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import MappingProxyType

from transom.policies.iterations import Iteration, cut_place, kept_iterations, question, removable
from transom.policies.protection import Protection
from transom.policies.substitution import substitute
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.turns import Group
from transom.policies.view import Summary, View

FOLDED = "[folded into the result above]"
LARGEST_SHARE_LEFT = 0.75  # of the limit: what may stand after a fold that takes little
SMALLEST_SHARE_TAKEN = 0.25  # of the limit: what is always worth a call, however large a summary may be


class Summarize:
    """The `summarize` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Fold into the earliest iteration if the token limit is exceeded and something is old enough."""
        guard = Protection(request.history, request.policy)
        limit = request.limits.reachable(guard.floor(request.view)).tokens
        if limit is None or request.size.tokens <= limit:
            return unchanged(request)
        fold = _fold(request, guard)
        if fold is None or not fold.worthwhile(limit):
            return unchanged(request)
        summary = await request.summarize(fold.span, fold.upto, fold.placed)
        if summary is None:
            return unchanged(request)
        return TrimResult(fold.placed(summary), trimmed=True, persist=True)


@dataclass(frozen=True, slots=True)
class Fold:
    """What is folded, and what carries it: `left` is the view after it, but for the texts that `results` get."""

    request: TrimRequest
    left: View
    results: tuple[int, ...]
    span: tuple[int, ...]
    upto: int

    def placed(self, summary: Summary) -> View:
        """Return the view with the summary in its carrier."""
        request, messages = self.request, self.request.history.messages
        texts = dict.fromkeys(self.results, FOLDED)
        texts[self.results[0]] = summary.text
        carried = {p: substitute(messages[p], text, request.count, request.content) for p, text in texts.items()}
        substitutes = MappingProxyType({**self.left.substitutes, **carried})
        return replace(self.left, summary=summary, carrier=self.results[0], substitutes=substitutes, owed=frozenset())

    def worthwhile(self, limit: int) -> bool:
        """Tell whether the fold serves for more than this request (rule 7)."""
        request, messages = self.request, self.request.history.messages
        allowed = request.summary_tokens
        taken = sum(messages[p].tokens for p in self.span)
        if not taken or taken >= min(allowed, int(limit * SMALLEST_SHARE_TAKEN)):
            return bool(taken)
        bare = {p: s for p, s in self.left.substitutes.items() if p not in self.results}
        rest = replace(self.left, summary=None, carrier=None, substitutes=bare).size(request.history).tokens
        rest -= sum(messages[p].tokens for p in self.results)
        return rest + allowed <= limit * LARGEST_SHARE_LEFT


def _fold(request: TrimRequest, guard: Protection) -> Fold | None:
    history, view, keep = request.history, request.view, request.policy.keep_last
    found = kept_iterations(history, view)
    old, newest = found[:-keep], found[-keep:]
    # What an assistant said before any user did answers nobody: it is folded, but nothing opens with it.
    spoken = bool(history.outline.current_turn)
    able = [i for i in old if not guard.covers(i.group) and (i.group.turn or not spoken)]
    if not able:
        return None
    carrier, place = _carrier(request, able, newest)
    stays = {carrier.group.members[0], *question(history, carrier.group)}
    bare = replace(view, carrier=None)  # the present carrier may go: what it says is taken along
    removed = [
        p
        for g in removable(history, bare, guard)
        if g.members[0] < place and g.members[0] not in stays
        for p in g.members
    ]
    left = bare.without(removed, guard.broken())
    upto = max(place, left.start, carrier.group.members[-1] + 1)
    results = _carried(carrier.group)
    return Fold(request, left, results, _span(request, left, results, upto), upto)


def _carrier(request: TrimRequest, old: list[Iteration], newest: list[Iteration]) -> tuple[Iteration, int]:
    """Choose the iteration that carries the summary, and the place up to which all else is folded (rules 4 and 5)."""
    history, first = request.history, newest[0]
    if first.group.turn == old[0].group.turn:
        return old[0], first.opens
    place = cut_place(history, first)
    followed = any(i.opens >= place for i in newest)
    if followed or old[-1].group.turn != first.group.turn:
        return old[0], place
    return old[-1], first.opens


def _carried(group: Group) -> tuple[int, ...]:
    """Return the messages of a group whose content a summary takes the place of, its carrier first."""
    return tuple(group.members[1:] or group.members)


def _span(request: TrimRequest, left: View, results: Iterable[int], upto: int) -> tuple[int, ...]:
    """Return what is folded: all before `upto` that neither stays nor is in the present summary already."""
    view, outline = request.view, request.history.outline
    stays = {p for p in left.positions(upto) if p < upto} - set(results)
    already = view.summary.upto if view.summary else 0
    told = set(range(already)) - view.owed - set(view.positions(already))
    if view.carrier is not None:
        told.update(_carried(outline.groups[outline.owner[view.carrier]]))
    return tuple(p for p in range(upto) if p not in stays and p not in told)
