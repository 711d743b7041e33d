"""Folds: what a trimmer asks to have summarised, and the two ways to answer it: for real, or as a rehearsal."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

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
    allowance: int  # tokens of the summary's text

    @property
    def replaced_tokens(self) -> int:
        """Tokens of what the summary stands for: the span and the summary before."""
        messages = self.request.history.messages
        previous = self.view.summary
        return sum(messages[p].tokens for p in self.span) + (previous.tokens if previous else 0)


WriteSummary = Callable[[FoldJob], Awaitable[SummaryRow | None]]


class Folding:
    """Asks for summaries on behalf of one pass, and remembers whether one was made or failed."""

    def __init__(self, request: Pass, write: WriteSummary) -> None:
        self._request = request
        self._write = write
        self.view = View()
        self.over_tokens = False
        self.allowance = 0
        self.made = False
        self.failed = False
        self.waited_s = 0.0

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None:
        end = span[-1] + 1 if upto is None else upto
        put = placed or self._standard(span, end)
        job = FoldJob(self._request, self.view, tuple(span), end, put, self.over_tokens, self.allowance)
        started = time.perf_counter()
        row = await self._write(job)
        self.waited_s += time.perf_counter() - started
        self.made, self.failed = row is not None, self.failed or row is None
        return None if row is None else as_summary(row)

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
        super().__init__(request, _nobody)

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None:
        self.made = True
        return Summary(b"rehearsal", "", self.allowance, span[-1] + 1 if upto is None else upto)


async def _nobody(_job: FoldJob) -> SummaryRow | None:
    return None
