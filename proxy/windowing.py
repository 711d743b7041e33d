"""Decide what is sent of a thread: replay a recorded step, start from the deepest baseline, run the trimmers, record.

It drives trimmers and keeps their results; what is old, protected or too much is theirs to know, and the text of a
summary is the summariser's. It never sees a socket or a wire format.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from transom.policies.clip import clip
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.protection import Protection, settled
from transom.policies.strategy import SUMMARIZING
from transom.policies.summary_size import summary_size
from transom.policies.trimmer import Trimmer, TrimRequest
from transom.policies.truncate import Truncate
from transom.policies.view import WHOLE, Size, Summary, View
from transom.proxy import recipes
from transom.proxy.folding import Background, Folding, Rehearsal, Summaries, as_summary
from transom.proxy.passes import Decision, Pass, before
from transom.proxy.threads import Makeshift, SessionState
from transom.storage.rows import BaselineRow, StepRow

NEAR_LIMIT = 0.95  # from here on a request is recorded before it is sent: a learned factor may tip it over next time
LABELS = {"compress": "compressed", "summarize": "compressed", "clear_tool_results": "cleared", "recall": "recalled"}
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5  # between looks at what another process is folding
ALWAYS = frozenset({"count"})  # trimmers that act on every request, over a limit or not

Trimmers = Callable[[tuple[str, ...]], tuple[tuple[str, Trimmer], ...]]
FindStep = Callable[[Pass], Awaitable[bytes | None]]
KeepCut = Callable[[Pass, Decision], None]

log = structlog.get_logger("transom.windowing")


class Windowing:
    """Decides views; one for the whole process."""

    def __init__(
        self,
        trimmers: Trimmers,
        count: Callable[[str], int],
        content: Callable[[Message], str],
        summaries: Summaries,
        find_step: FindStep,
        *,
        shared: bool,
    ) -> None:
        self._trimmers, self._count, self._content = trimmers, count, content
        self._summaries, self._find_step, self._shared = summaries, find_step, shared
        self._deciding: dict[tuple[bytes, ...], asyncio.Future[None]] = {}

    async def decide(self, request: Pass) -> Decision:
        """Return what is sent. The same request is decided once, also when it comes twice at the same time."""
        key = (request.state.id, *request.key)
        while (other := self._deciding.get(key)) is not None:
            await asyncio.wait([other])
        done = self._deciding[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._replayed(request) or await self._decided(request)
        finally:
            del self._deciding[key]
            done.set_result(None)

    async def _replayed(self, request: Pass) -> Decision | None:
        recipe = request.state.steps.get(request.key)
        if recipe is None and request.conversation.known:
            recipe = await self._find_step(request)
        return self.read_step(request, recipe) if recipe is not None else None

    def read_step(self, request: Pass, recipe: bytes) -> Decision | None:
        """Return the decision a step recorded; None if the summary it names is gone."""
        found = recipes.decode(recipe, lambda i: _summary(request.state, i))
        if found is None:
            return None
        view, labels = found
        sent = view.size(request.history)
        over = not request.budget.most_sent.hold(sent)
        return Decision(view, before(request), sent, ["replayed", *labels], over_budget=over)

    async def _decided(self, request: Pass) -> Decision:
        started, pause, left = time.perf_counter(), SHORTEST_PAUSE_S, request.route.policy.summary_wait
        baselines: list[BaselineRow] = []  # of every try: what one kept, the next began with
        while True:
            view = self.starting_view(request)
            decision = Decision(view, before(request), view.size(request.history), [])
            folding = Folding(request, self._summaries, left)
            await self._run(request, decision, folding, _keep_cut)
            baselines += decision.baselines
            left = started + request.route.policy.summary_wait - time.perf_counter()
            if not folding.elsewhere or left <= 0:
                break
            # Another process folds this thread: wait for what comes of it, which may be this request's own step.
            if self.starting_view(request) == view:
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE_S)
            recipe = await self._find_step(request)
            theirs = self.read_step(request, recipe) if recipe is not None else None
            if theirs is not None:
                theirs.waited_s = time.perf_counter() - started
                return theirs
        decision.baselines = baselines
        if pause > SHORTEST_PAUSE_S:
            decision.waited_s = time.perf_counter() - started
        if decision.labels == ["fits"] and request.thread.sent and _first_with_summary(request, decision.view):
            decision.labels = ["compressed"]  # ahead of need, and this is the first request that is sent so
        recipe = recipes.encode(decision.view, tuple(label for label in decision.labels if label != "fits"))
        if not (self._shared and decision.decisive):  # else what was committed first is remembered, once that is known
            request.state.remember_step(request.key, recipe)
        decision.step = StepRow(request.state.id, *request.key, recipe)
        return decision

    async def rehearse(self, request: Pass) -> Decision:
        """Return what would be sent if the policy were enforced; no model is called and nothing is recorded."""
        thread = request.thread
        view = thread.rehearsed if thread.rehearsed.reach <= len(request.history) else WHOLE
        decision = Decision(view, before(request), view.size(request.history), [])

        def keep(_request: Pass, made: Decision) -> None:
            thread.rehearsed = made.view

        await self._run(request, decision, Rehearsal(request), keep)
        return decision

    async def _run(self, request: Pass, decision: Decision, folding: Folding, keep: KeepCut) -> None:
        limits, most = request.budget.limits, request.budget.most_sent
        names = request.route.policy.trimmers
        if not limits.hold(decision.sent) and await folding.join():
            # Somebody else's fold of this thread is done: what it left is where this request starts from.
            decision.view = self.starting_view(request)
            decision.sent = decision.view.size(request.history)
        folding.blocked = folding.blocked or _is_refused(request, decision.view)
        if not limits.hold(decision.sent) or not ALWAYS.isdisjoint(names):
            await self._trim(request, decision, folding, keep)
        if not most.hold(decision.sent) and request.route.policy.on_unfit == "clip":
            await self._clip(request, decision, most)
        decision.over_budget = not most.hold(decision.sent)
        if "recall" in names:
            await self._recall(request, decision, folding)
        decision.decisive = decision.decisive or self._may_differ(request, decision)
        decision.labels = list(dict.fromkeys(decision.labels))
        if decision.over_budget:
            decision.labels.append("over-budget")
            _warn(request, decision)
        elif not decision.labels:
            decision.labels = ["fits"]

    def _may_differ(self, request: Pass, decision: Decision) -> bool:
        """Tell whether the same request might be decided otherwise, although nothing was done to this one.

        A factor learned meanwhile may tip it over its limit; and another process may know of a summary that was made
        ahead of need, or not yet know of this one.
        """
        limits, ahead = request.budget.limits, request.route.policy.compact_at
        if limits.tokens is not None and decision.sent.tokens > NEAR_LIMIT * limits.tokens:
            return True
        if not self._shared or ahead is None:
            return False
        return not limits.scaled(ahead).hold(decision.sent) or _first_with_summary(request, decision.view)

    def starting_view(self, request: Pass) -> View:
        """Return what later passes start from: the newest summary of this thread, and the deepest cut made on it.

        What the client broke since is left out, once something has been removed at all.
        """
        view, newest = WHOLE, -1
        for row in request.state.baselines:  # the deepest first
            if row.position >= len(request.history) or request.thread.ids[row.position] != row.at:
                continue
            if row.kind == "cut" and row.policy != request.cut_policy:
                continue
            summary = request.state.summaries.get(row.summary) if row.summary is not None else None
            upto = summary.position if summary is not None else 0
            if upto <= newest:
                continue
            found = recipes.decode(row.recipe, lambda i: _summary(request.state, i))
            if found is not None and _holds_end(found[0], request):
                view, newest = found[0], upto
        return settled(request.history, Protection(request.history, request.route.policy), view) if view.start else view

    async def _trim(self, request: Pass, decision: Decision, folding: Folding, keep: KeepCut) -> None:
        """Run the trimmers in order, each on what the one before left, until every limit holds."""
        policy = request.route.policy
        guard = Protection(request.history, policy)
        bare = guard.bare(decision.view)
        limits = request.budget.reachable(bare + decision.view.summary_size, bare)
        persist = True
        for name, trimmer in self._trimmers(policy.trimmers):
            if name == "recall" or (limits.hold(decision.sent) and name not in ALWAYS):
                continue
            if folding.failed and _as_before(request, decision, limits):
                continue
            folding.view, folding.over_tokens = decision.view, limits.over_tokens(decision.sent)
            folding.size = summary_size(policy, limits, guard.fixed(decision.view))
            result = await trimmer.trim(self._trim_request(request, decision.view, limits, policy, folding))
            persist = persist and not folding.failed
            if result.trimmed:
                _apply(request, decision, name, result.view)
                persist = persist and result.persist
                if persist:
                    keep(request, decision)
        if folding.failed:
            request.thread.makeshift = Makeshift(request.cut_policy, decision.view.baseline())
        decision.waited_s = folding.waited_s

    def _trim_request(self, request: Pass, view: View, limits: Limits, policy: Policy, folding: Folding) -> TrimRequest:
        most = folding.size.message
        return TrimRequest(request.history, view, limits, policy, most, folding, self._count, self._content)

    async def _clip(self, request: Pass, decision: Decision, limits: Limits) -> None:
        """Shorten what cannot be removed; with that done a cut may be worth it again."""
        if limits.tokens is None:
            return
        view = clip(request.history, decision.view, limits.tokens, self._count, self._content)
        if view is not decision.view:
            _apply(request, decision, "clip", view, label="clipped")
        if not limits.hold(decision.sent):
            request_ = self._trim_request(request, decision.view, limits, request.route.policy, Rehearsal(request))
            result = await Truncate().trim(request_)
            if result.trimmed:
                _apply(request, decision, "truncate", result.view)

    async def _recall(self, request: Pass, decision: Decision, folding: Folding) -> None:
        """Bring back what the newest user message asks for of what is cut: once per user turn."""
        last_user = request.history.outline.last_user
        if last_user is None or decision.view.is_whole:
            return
        thread, turn = request.thread, request.thread.ids[last_user]
        if thread.recalled is None or thread.recalled[0] != turn:
            for name, trimmer in self._trimmers(request.route.policy.trimmers):
                if name == "recall":
                    limits = request.budget.most_sent
                    trim = self._trim_request(request, decision.view, limits, request.route.policy, folding)
                    thread.recalled = (turn, (await trimmer.trim(trim)).view.recalled)
        recalled = thread.recalled[1] if thread.recalled is not None else None
        if recalled is None or not decision.view.keeps(recalled.before):
            return
        view = replace(decision.view, recalled=recalled)
        if request.budget.most_sent.hold(view.size(request.history)):  # the turn may have grown since
            _apply(request, decision, "recall", view)
            decision.removed.pop("recall", None)

    async def fold_ahead(self, request: Pass, size: Size) -> None:
        """Fold in the background what the thread's next request would need folded; it starts at `size`.

        The next request brings a turn, so one turn less is kept than the policy says.
        """
        policy, limits = request.route.policy, request.budget.limits
        mark = policy.compact_at or 1.0
        low = limits.scaled(mark)
        ahead = policy.model_copy(
            update={
                "keep_recent_turns": max(1, policy.keep_recent_turns - 1),
                "trim_to": min(1.0, policy.trim_to / mark),
            }
        )
        view = self.starting_view(request)
        folding = Background(request, self._summaries)
        folding.view, folding.over_tokens = view, limits.tokens is not None and size.tokens > mark * limits.tokens
        folding.size = summary_size(policy, limits, Protection(request.history, policy).fixed(view))
        for name, trimmer in self._trimmers(policy.trimmers):
            if name in SUMMARIZING:
                await trimmer.trim(self._trim_request(request, view, low, ahead, folding))

    async def shrink(self, request: Pass, decision: Decision, target: int) -> Decision | None:
        """Return a strictly smaller decision after the upstream found this one too long; None if nothing can go.

        `target` is what the view should come down to, in o200k tokens.
        """
        policy = request.route.policy.model_copy(update={"trim_to": 1.0, "keep_recent_iterations": 1})
        smaller = replace(decision, labels=[x for x in decision.labels if x not in ("fits", "replayed")], removed={})
        smaller.baselines = []
        # What is protected may be too much by itself: all else goes then, before anything is clipped.
        guard = Protection(request.history, policy)
        most = target if guard.bare(decision.view).tokens <= target else guard.floor(decision.view).tokens
        request_ = self._trim_request(request, decision.view, Limits(most), policy, Rehearsal(request))
        result = await Truncate().trim(request_)
        if result.trimmed:
            _apply(request, smaller, "truncate", result.view)
            if result.persist:
                _keep_cut(request, smaller)
        if smaller.sent.tokens > target:
            # Nobody asked for clipping: what the user said last goes up as it is, or the upstream's refusal comes back.
            last_user = request.history.outline.last_user
            spared = () if last_user is None else (last_user,)
            view = clip(request.history, smaller.view, target, self._count, self._content, spared)
            if view is not smaller.view:
                _apply(request, smaller, "clip", view, label="clipped")
        if smaller.sent.tokens >= decision.sent.tokens:
            return None
        recipe = recipes.encode(smaller.view, tuple(smaller.labels))
        request.state.remember_step(request.key, recipe)
        smaller.step = StepRow(request.state.id, *request.key, recipe)
        return smaller


def _is_refused(request: Pass, view: View) -> bool:
    """Tell whether the request is answered with an error, whatever is cut: then no summary is to be paid for."""
    policy, most = request.route.policy, request.budget.most_sent
    return policy.on_unfit == "error" and not most.hold(Protection(request.history, policy).bare(view))


def _first_with_summary(request: Pass, view: View) -> bool:
    """Tell whether the thread's last request, if one is known, was sent without the view's summary."""
    last = request.thread.sent
    return view.summary is not None and (last is None or last.view.summary != view.summary)


def _as_before(request: Pass, decision: Decision, limits: Limits) -> bool:
    """Cut as the last time no summary came about, while that fits: what is sent then begins as it did.

    It is no baseline: the next summary that succeeds covers what was cut meanwhile.
    """
    made, view = request.thread.makeshift, decision.view
    if made is None or made.policy != request.cut_policy or made.view.reach >= len(request.history):
        return False
    cut = made.view
    if cut.summary != view.summary or cut.start <= view.start or not _holds_end(cut, request):
        return False
    cut = settled(request.history, Protection(request.history, request.route.policy), cut)
    if not limits.hold(cut.size(request.history)):
        return False
    _apply(request, decision, "truncate", cut)
    del decision.removed["truncate"]  # it was counted when it went
    return True


def _warn(request: Pass, decision: Decision) -> None:
    """Say once for each thread that no cut makes its limits hold."""
    if not request.thread.warned:
        request.thread.warned = True
        limits = request.budget.limits
        log.warning(
            "what is never removed is over the limit",
            policy=request.route.policy_name,
            tokens=decision.sent.tokens,
            items=decision.sent.items,
            token_limit=limits.tokens,
            item_limit=limits.items,
        )


def _holds_end(view: View, request: Pass) -> bool:
    """Tell whether a baseline keeps what this request ends with: it may have been made for another continuation."""
    outline = request.history.outline
    end = outline.groups[outline.owner[-1]].members
    needed = end if outline.last_user is None else [*end, outline.last_user]
    return all(view.keeps(p) and p not in view.substitutes for p in needed)


def _apply(request: Pass, decision: Decision, name: str, view: View, *, label: str | None = None) -> None:
    """Take over a trimmer's view, and what it did to the size."""
    size = view.size(request.history)
    if name not in SUMMARIZING:  # what a fold removes is counted when its summary is made, which may be ahead of need
        decision.removed[name] = max(0, decision.sent.items - size.items)
    decision.view, decision.sent, decision.decisive = view, size, True
    decision.labels.append(label or LABELS.get(name, "cut"))


def _keep_cut(request: Pass, decision: Decision) -> None:
    """Make a cut the baseline of later requests; a summary's own baseline was recorded when it was made."""
    view = decision.view.baseline()
    if not view.reach:
        return
    if view.carrier is None and view.summary is not None and view.summary.upto == view.reach and not view.owed:
        return
    row = BaselineRow(
        session=request.state.id,
        at=request.thread.ids[view.reach - 1],
        position=view.reach - 1,
        kind="cut",
        policy=request.cut_policy,
        recipe=recipes.encode(view),
        summary=view.summary.id if view.summary else None,
    )
    decision.baselines.append(row)
    request.state.remember_baseline(row)


def _summary(state: SessionState, summary: bytes) -> Summary | None:
    row = state.summaries.get(summary)
    return None if row is None else as_summary(row)
