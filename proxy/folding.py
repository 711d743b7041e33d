"""Folds: what a trimmer asks to have summarised, and the two ways to answer it: for real, or as a rehearsal."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.policies.summary_size import SummarySize
from transom.policies.view import Summary, View
from transom.proxy.passes import Pass
from transom.storage.rows import SummaryRow


@dataclass(frozen=True, slots=True)
class FoldJob:
    """A fold that a trimmer asked for: what is to be summarised, in place of what, and how large it may be."""

    request: Pass
    view: View
    span: tuple[int, ...]
    upto: int
    placed: Callable[[Summary], View]
    over_tokens: bool  # whether the token limit is exceeded, or only the item limit
    size: SummarySize
    current_turn: bool  # whether work done since the last user message is in it
    wait_s: float  # how long the one who asks waits

    @property
    def replaced_tokens(self) -> int:
        """Tokens of what the summary stands for: the span and the summary before."""
        messages = self.request.history.messages
        previous = self.view.summary
        return sum([messages[p].tokens for p in self.span]) + (previous.tokens if previous else 0)


class Summaries(Protocol):
    """Who writes summaries, as those see it who need one."""

    async def write(self, job: FoldJob) -> SummaryRow | None:
        """Return a summary, or None if there is none to be had in time."""
        ...

    def running(self, request: Pass) -> "asyncio.Task[SummaryRow | None] | None":
        """Return the fold of this very thread that is under way, whoever asked for it."""
        ...

    def elsewhere(self, request: Pass) -> bool:
        """Tell whether another process holds the thread's lease, as far as is known."""
        ...

    def joined(self, request: Pass) -> None:
        """Count a request that made use of another one's fold."""
        ...


class Folding:
    """Asks for summaries on behalf of one pass, and remembers whether one was made or failed."""

    def __init__(self, request: Pass, summaries: Summaries, wait_s: float) -> None:
        self._request = request
        self._summaries = summaries
        self._wait_s = wait_s
        self.view = View()
        self.over_tokens = False
        self.size = SummarySize()
        self.made = False
        self.failed = False
        self.waited_s = 0.0
        self.elsewhere = False  # another process folds this thread
        # Set when another fold of this thread is under way and was waited for long enough. With a storage that fails
        # the summary would be lost, and paid again.
        conversation = request.conversation
        self.blocked = conversation.storage_failed or (conversation.persist and conversation.state.failing)

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None:
        if self.blocked or not self._worth(span):
            self.failed = True
            return None
        end = span[-1] + 1 if upto is None else upto
        last_user = self._request.history.outline.last_user
        job = FoldJob(
            request=self._request,
            view=self.view,
            span=tuple(span),
            upto=end,
            placed=placed or self._standard(span, end),
            over_tokens=self.over_tokens,
            size=self.size,
            current_turn=last_user is not None and end > last_user,
            wait_s=self._wait_s,
        )
        started = time.perf_counter()
        row = await self._summaries.write(job)
        self.elsewhere = row is None and self._summaries.elsewhere(self._request)
        self.waited_s += time.perf_counter() - started
        self.made, self.failed = row is not None, self.failed or row is None
        return None if row is None else as_summary(row)

    async def join(self) -> bool:
        """Wait for a fold of this thread that is under way; tell whether it has ended, so that one may look again."""
        task = self._summaries.running(self._request)
        if task is None:
            return False
        started = time.perf_counter()
        done, _ = await asyncio.wait([task], timeout=self._wait_s)
        self.waited_s += time.perf_counter() - started
        self.blocked = self.blocked or not done
        if done:
            self._summaries.joined(self._request)
        return bool(done)

    def _worth(self, _span: Sequence[int]) -> bool:
        return True

    def _standard(self, span: Sequence[int], upto: int) -> Callable[[Summary], View]:
        view, taken = self.view, set(span)
        kept = [p for p in range(upto) if p not in taken and view.keeps(p)]
        return lambda summary: view.folded(summary, kept, ())


def as_summary(row: SummaryRow) -> Summary:
    """Read a stored summary as the value policies know."""
    return Summary(row.id, row.text, row.tokens, row.position)


class Rehearsal(Folding):
    """Answers with a summary of the allowed size that nobody wrote: for policies that are only watched."""

    def __init__(self, request: Pass) -> None:
        super().__init__(request, _Nobody(), 0)

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None:
        self.made = True
        return Summary(b"rehearsal", "", self.size.text, span[-1] + 1 if upto is None else upto)


class _Nobody:
    async def write(self, _job: FoldJob) -> SummaryRow | None:
        return None

    def running(self, _request: Pass) -> None:
        return None

    def elsewhere(self, _request: Pass) -> bool:
        return False

    def joined(self, _request: Pass) -> None:
        return None


class Background(Folding):
    """Folds ahead of need: nobody waits but the task itself, and small spans are left for later."""

    def __init__(self, request: Pass, summaries: Summaries) -> None:
        super().__init__(request, summaries, request.route.policy.summary_timeout)

    def _worth(self, span: Sequence[int]) -> bool:
        messages = self._request.history.messages
        return sum([messages[p].tokens for p in span]) >= self._request.route.policy.min_span_tokens
