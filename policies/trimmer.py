"""The port between deciding and doing: one Protocol, the same for built-in trimmers and for your own.

A trimmer looks at a request and says what should be sent. It changes nothing, opens nothing, reads no clock; the one
thing it may ask for is a summary. So "compress, then truncate" reads top to bottom in one function, and a test drives
a trimmer without a loop of mocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.view import Size, Summary, View


class Summarize(Protocol):
    """Summarise the messages at `span` (ascending positions), and what the view's present summary says.

    The result stands for everything before `upto` (default: up to the end of the span). `placed` puts it into the
    view (default: as a message of its own, in place of the span): it is called once the summary is there, which may be
    after an impatient request has gone on without it, so it must depend on nothing that changes.
    Returns None if no acceptable summary could be had now; the caller goes on without one and nothing is lost.
    """

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None: ...


@dataclass(frozen=True, slots=True)
class TrimRequest:
    """All that a trimmer may look at.

    `view` is what the trimmer before left; `limits` are in o200k tokens and items of the whole view; `summary_tokens`
    is the most a new summary message may count; `count` measures a text in o200k tokens; `content` gives a message's
    readable text.
    """

    history: History
    view: View
    limits: Limits
    policy: Policy
    summary_tokens: int
    summarize: Summarize
    count: Callable[[str], int]
    content: Callable[[Message], str]

    @property
    def size(self) -> Size:
        """Size of the present view."""
        return self.view.size(self.history)


@dataclass(frozen=True, slots=True)
class TrimResult:
    """What a trimmer decided: the view to send, whether it differs, and whether later passes start from it."""

    view: View
    trimmed: bool
    persist: bool


class Trimmer(Protocol):
    """Decide what of a thread is sent. See `transom.policies.truncate` for the shortest example."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Return the view to send; never mutate the request."""
        ...


def unchanged(request: TrimRequest) -> TrimResult:
    """Return the view as it was."""
    return TrimResult(request.view, trimmed=False, persist=False)
