"""Have summaries written: one call per span whoever asks, in chunks that fit, accepted only when they are of use.

A summary that fails never fails a request and never loses history: the caller is told None and cuts for itself. The
call outlives an impatient request, and what it brings serves the next one.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

import structlog

from transom.policies import constraints, ledger, render
from transom.policies.items import Message
from transom.policies.view import View
from transom.proxy import recipes
from transom.proxy.claims import unrivalled
from transom.proxy.config.settings import Model
from transom.proxy.folding import FoldJob, as_summary
from transom.proxy.logs import describe
from transom.proxy.metrics import Metrics, SummaryOutcome
from transom.proxy.passes import Pass
from transom.proxy.records import Recording
from transom.proxy.threads import Breaker
from transom.storage.rows import BaselineRow, SummaryRow
from transom.storage.store import StorageError

FAILURES_TO_OPEN = 2
BREAKER_S = 60.0
REASONING_TOKENS = 4_096  # more room for models that think before they write
PROMPT_TOKENS = 400  # instruction, fences, reminder and the model's own marks, generously
SMALLEST_CHUNK = 256  # tokens of transcript per call, however small the summariser's window is

log = structlog.get_logger("transom.summaries")


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """What a summary model answered. `failure` says why it is none, `cost` its tokens, as far as they are known."""

    text: str = ""
    finish: str | None = None
    failure: str | None = None
    cost: int | None = None


class CallModel(Protocol):
    """Send one instruction and record to a model, with the most tokens it may answer."""

    async def __call__(self, job: FoldJob, instruction: str, record: str, limit: int) -> SummaryReply: ...


class SummaryFailed(Exception):
    """No acceptable summary came of a call."""

    def __init__(self, outcome: SummaryOutcome, why: str) -> None:
        super().__init__(why)
        self.outcome: SummaryOutcome = outcome


@dataclass(frozen=True, slots=True)
class Tools:
    """What a summariser works with: `store` keeps a summary with the baseline that uses it, as one."""

    call: CallModel
    model_of: Callable[[FoldJob], Model]
    spoken: Callable[[Message], render.Spoken]
    count: Callable[[str], int]
    store: Callable[[FoldJob, SummaryRow, BaselineRow], Awaitable[None]]
    claim: Callable[[bytes, bytes], AbstractAsyncContextManager[bool]] = unrivalled  # see Claims
    refresh: Callable[[Pass], Awaitable[None]] | None = None  # learns what other processes have folded of a thread
    window: Callable[[Model], int | None] = attrgetter("max_input_tokens")  # what a model reads, in o200k tokens
    affords: Callable[[FoldJob], bool] | None = None  # None: summaries may cost what they like


@dataclass(slots=True, eq=False)
class Running:
    """A fold under way: it begins with the thread's `root` and ends before position `upto`, with the message `at`."""

    root: bytes
    upto: int
    at: bytes
    task: asyncio.Task[SummaryRow | None] = field(init=False)
    elsewhere: bool = False  # whether another process folds the thread, or has just done so


class Summariser:
    """Writes summaries; one for the whole process."""

    def __init__(self, tools: Tools, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._call, self._model_of, self._store = tools.call, tools.model_of, tools.store
        self._count, self._recording = tools.count, Recording(tools.spoken, tools.count)
        self._claim, self._refresh = tools.claim, tools.refresh
        self._affords, self._window = tools.affords, tools.window
        self._metrics, self._clock = metrics, clock
        self._running: dict[bytes, list[Running]] = {}
        self._elsewhere: set[tuple[bytes, bytes]] = set()

    async def write(self, job: FoldJob) -> SummaryRow | None:
        """Return the summary of a span, or None if there is none to be had within the policy's `summary_wait`."""
        request = job.request
        if self._affords is not None and self.running(request) is None and not self._affords(job):
            self._outcome(job, "budget")
            return None
        if self._breaker_open(request):
            self._outcome(job, "breaker_open")
            return None
        fold = self._fold_of(request)
        if fold is None:
            fold = self._start(job)
        else:
            self._outcome(job, "reused")
        done, _ = await asyncio.wait([fold.task], timeout=job.wait_s)
        if fold.elsewhere:
            self._elsewhere.add((request.state.id, fold.root))
        return fold.task.result() if done else None

    def running(self, request: Pass) -> asyncio.Task[SummaryRow | None] | None:
        """Return the fold of this very thread that is under way: one whose last message stands in it."""
        fold = self._fold_of(request)
        return None if fold is None else fold.task

    def _fold_of(self, request: Pass) -> Running | None:
        ids = request.thread.ids
        for fold in self._running.get(request.state.id, ()):
            if fold.upto <= len(request.history) and ids[fold.upto - 1] == fold.at:
                return fold
        return None

    def joined(self, request: Pass) -> None:
        """Count a request that made use of another one's fold."""
        tenant, route = request.conversation.caller.tenant, request.route
        self._metrics.summary(tenant.name, route.policy_name, route.policy.summary_model or route.model.label, "reused")

    def _start(self, job: FoldJob) -> Running:
        """Begin a fold. It is under way at once, before its thread is ours: whoever asks meanwhile joins it."""
        session, ids = job.request.state.id, job.request.thread.ids
        fold = Running(ids[0], job.upto, ids[job.upto - 1])
        fold.task = asyncio.create_task(self._write(job, fold))
        folds = self._running.setdefault(session, [])
        folds.append(fold)

        def ended(_task: object) -> None:
            folds.remove(fold)
            if not folds:
                self._running.pop(session, None)

        fold.task.add_done_callback(ended)
        return fold

    def elsewhere(self, request: Pass) -> bool:
        """Tell, once for each answer of `write`, whether it was None because another process folds this thread."""
        key = (request.state.id, request.thread.ids[0])
        found = key in self._elsewhere
        self._elsewhere.discard(key)
        return found

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = [fold.task for folds in self._running.values() for fold in folds]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _breaker(self, request: Pass) -> Breaker:
        return request.state.breakers.setdefault(request.thread.ids[0], Breaker())

    def _breaker_open(self, request: Pass) -> bool:
        breaker = self._breaker(request)
        if breaker.opened_at is None or self._clock() - breaker.opened_at < BREAKER_S:
            return breaker.opened_at is not None
        breaker.opened_at = self._clock()  # half-open: one try, and the others wait for how it ends
        return False

    async def _write(self, job: FoldJob, fold: Running) -> SummaryRow | None:
        try:
            async with self._claim(job.request.state.id, fold.root) as ours:
                fold.elsewhere = not ours
                return await self._written(job, fold) if ours else None
        except StorageError:
            return None

    async def _written(self, job: FoldJob, fold: Running) -> SummaryRow | None:
        if self._refresh is not None:
            await self._refresh(job.request)
        newer = _newer(job)
        if newer is None:
            return await self._judged(job, fold.at)
        if newer.position == job.upto:
            self._outcome(job, "reused")
            return newer
        fold.elsewhere = True  # of less than the span: the request has to start from there
        return None

    async def _judged(self, job: FoldJob, at: bytes) -> SummaryRow | None:
        breaker, model, started = self._breaker(job.request), self._model_of(job), time.perf_counter()
        try:
            async with asyncio.timeout(job.request.route.policy.summary_timeout):
                row = await self._fold(job, model, at)
        except Exception as problem:  # noqa: BLE001  whatever goes wrong here, the request is served
            outcome, why = _failure(problem)
            self._outcome(job, outcome)
            log.warning("summary failed", outcome=outcome, reason=why, model=model.label)
            breaker.failures += outcome != "budget"
            if breaker.failures >= FAILURES_TO_OPEN:
                breaker.opened_at = self._clock()
            return None
        breaker.failures, breaker.opened_at = 0, None
        self._outcome(job, "created" if _still_in_thread(job, at) else "stale")
        _log_created(job, row, time.perf_counter() - started)
        await self._keep(job, row)
        return row

    async def _keep(self, job: FoldJob, row: SummaryRow) -> None:
        """Record the summary together with the baseline that uses it: they change as one."""
        state, summary = job.request.state, as_summary(row)
        state.summaries[row.id] = row
        view = job.placed(summary).baseline()
        request = job.request
        items = sum([request.history.messages[p].items for p in job.span])
        trimmer = "compress" if view.carrier is None else "summarize"
        tenant = request.conversation.caller.tenant.name
        self._metrics.items_removed(tenant, request.route.policy_name, trimmer, items)
        # Anybody may start from a summary that is a message of its own; what was cut behind it is the policy's affair.
        shared = view.carrier is None
        if shared:
            view = View(summary.upto, tuple(p for p in view.head if p < summary.upto), summary)
        baseline = BaselineRow(
            session=state.id,
            at=job.request.thread.ids[view.reach - 1],
            position=view.reach - 1,
            kind="summary" if shared else "cut",
            policy=b"" if shared else job.request.cut_policy,
            recipe=recipes.encode(view),
            summary=row.id,
        )
        state.remember_baseline(baseline)
        await self._store(job, row, baseline)

    async def _fold(self, job: FoldJob, model: Model, at: bytes) -> SummaryRow:
        """Fold the span chunk by chunk, oldest first, and finish the summary message."""
        request, previous = job.request, job.view.summary
        messages = [request.history.messages[p] for p in job.span]
        body = _written_body(previous.text) if previous else None
        room = self._room(job, model, body)
        record = await asyncio.to_thread(self._recording.record, messages, job.size.result, room)
        quotes: list[str] = []
        for chunk in record.chunks:
            body, found = constraints.split_constraints(await self._one_call(job, body, chunk))
            quotes += found
        old = request.state.summaries[previous.id].constraints if previous else ()
        policy = request.route.policy
        carried = constraints.merged(
            old, constraints.verified(quotes, record.said), self._count, policy.constraints_max_tokens
        )
        seen = request.state.summaries[previous.id].ledger if previous else ()
        told = body or ""
        values = await asyncio.to_thread(ledger.merged, seen, record.folded, self._count, job.size.ledger, told)
        listed, quoted = ledger.section(values, told), constraints.section(carried)
        text = render.summary_text(told, listed, quoted, current_turn=job.current_turn)
        row = SummaryRow(
            id=secrets.token_bytes(16),
            session=request.state.id,
            upto=at,
            position=job.upto,
            previous=previous.id if previous else None,
            text=text,
            tokens=self._count(text) + 4,
            model=model.label,
            prompt_version=render.PROMPT_VERSION,
            constraints=carried,
            ledger=values,
        )
        self._check_size(job, row, told)
        return row

    def _check_size(self, job: FoldJob, row: SummaryRow, body: str) -> None:
        """Accept a summary only if it is smaller than what it replaces, or as small as was allowed (invariant 5)."""
        if job.over_tokens:
            if row.tokens >= job.replaced_tokens:
                raise SummaryFailed("rejected", "the summary is not smaller than what it replaces")
        elif self._count(body) > job.size.text:
            raise SummaryFailed("rejected", "the summary is larger than summary_max_tokens")

    async def _one_call(self, job: FoldJob, previous: str | None, chunk: str) -> str:
        """Make one call; an answer that ran into its limit is asked for once more at half the length, then cut."""
        most = job.size.text
        for limit in (most, max(1, most // 2)):
            nonce = secrets.token_hex(8)
            instruction, record = render.summary_request(previous, chunk, nonce=nonce, limit=limit)
            reply = await self._call(job, instruction, record, most)
            if reply.failure is not None:
                raise SummaryFailed("failed", reply.failure)
            if not reply.text.strip():
                raise SummaryFailed("failed", "the model wrote nothing")
            if reply.finish != "length":
                return reply.text
        lines = reply.text.rstrip().split("\n")
        return "\n".join(lines[:-1]) if len(lines) > 1 else reply.text

    def _room(self, job: FoldJob, model: Model, previous: str | None) -> int | None:
        window = self._window(model)
        if window is None:
            return None
        answer = job.size.text + (REASONING_TOKENS if model.reasons else 0)
        carried = max(self._count(previous or ""), job.size.text)
        return max(SMALLEST_CHUNK, window - answer - carried - PROMPT_TOKENS)

    def _outcome(self, job: FoldJob, outcome: SummaryOutcome) -> None:
        request = job.request
        tenant = request.conversation.caller.tenant.name
        self._metrics.summary(tenant, request.route.policy_name, self._model_of(job).label, outcome)


def _still_in_thread(job: FoldJob, at: bytes) -> bool:
    """Tell whether the thread, as its newest request sent it, holds the span: its client may have gone back meanwhile.

    If not, the summary is kept for who comes back to the span, and no request of today's thread is sent with it.
    """
    root = job.request.thread.ids[0]
    newest = next((t.ids for t in reversed(job.request.state.threads) if t.ids[:1] == [root]), ())
    return len(newest) >= job.upto and newest[job.upto - 1] == at


def _newer(job: FoldJob) -> SummaryRow | None:
    """Return the newest summary of the job's span, or of a part from its start, that came about since it was asked for.

    Until the thread was ours, another process may have folded it.
    """
    state, ids = job.request.state, job.request.thread.ids
    newest, upto = None, job.view.summary.upto if job.view.summary else 0
    for baseline in state.baselines:
        summary = state.summaries.get(baseline.summary) if baseline.summary is not None else None
        if baseline.kind != "summary" or summary is None or not upto < summary.position <= job.upto:
            continue
        if ids[baseline.position] == baseline.at:
            newest, upto = summary, summary.position
    return newest


def _written_body(text: str) -> str:
    """Return what a model wrote of a summary: the sections that code keeps are added anew each time."""
    body = render.summary_body(text)
    for heading in (ledger.HEADING, constraints.HEADING):
        body = body.partition(f"\n\n{heading}")[0]
    return body


def _log_created(job: FoldJob, row: SummaryRow, seconds: float) -> None:
    """Tell an operator that something was folded, and nothing of what it said."""
    request = job.request
    log.info(
        "summary created",
        tenant=request.conversation.caller.tenant.name,
        policy=request.route.policy_name,
        session=request.state.id.hex(),
        model=row.model,
        messages=len(job.span),
        tokens_before=job.replaced_tokens,
        tokens_after=row.tokens,
        seconds=round(seconds, 2),
    )


def _failure(problem: Exception) -> tuple[SummaryOutcome, str]:
    """Return what to count and what to log."""
    if isinstance(problem, SummaryFailed):
        return problem.outcome, str(problem)
    if isinstance(problem, TimeoutError):
        return "timeout", "summary_timeout"
    return "failed", describe(problem)
