"""One call of litellm's as the network sees it; it sends nothing itself.

litellm's exceptions hold tracebacks, keys and addresses, and it reports some broken answers as empty successes. So what
became of a call is read from the wire: the provider's own refusal, the proxy's own error, and whether the provider
itself said why its answer ends.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from transom.proxy.errors import TransomError
from transom.proxy.upstream.http.message import HttpRequest
from transom.proxy.upstream.http.reply import HttpReply

__all__ = ["Call", "Carrier", "Refusal", "current"]

# What a provider's reason may be called: finish_reason, finishReason, stop_reason, stopReason, done_reason, …
REASON = re.compile(rb'"(?:finish|stop|done|completion)_?[rR]eason"\s*:\s*"')
TAIL_BYTES = 4096


class Carrier(Protocol):
    """Take a request to its server."""

    async def fetch(self, request: HttpRequest) -> HttpReply: ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """A provider's 4xx or 5xx."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Call:
    """One call of litellm's, as the network sees it.

    Attributes:
        carrier: whose connections it takes.
        replies: what is to be closed when the call ends, however it ends.
        answers: what litellm was handed, as its HTTP client (httpx) knows it.
        refusal: how the last request was refused, if it was.
        failure: why the last request brought no whole answer.
        answered: whether the last request brought a 2xx.
        headers: those of that answer.
        reasoned: whether the provider said why its answer ends.
        tail: the last bytes of the answer.
    """

    carrier: Carrier
    replies: list[HttpReply] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    refusal: Refusal | None = None
    failure: TransomError | None = None
    answered: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    reasoned: bool = False
    tail: bytes = b""

    def begin(self) -> None:
        """Forget what became of the request before: litellm may make several, for a token or another try."""
        self.refusal, self.failure, self.answered, self.reasoned, self.tail = None, None, False, False, b""

    def saw(self, piece: bytes) -> None:
        """Look at the next bytes of an answer."""
        seen = self.tail + piece
        if not self.reasoned:
            # What stood in the tail before was looked at before; a name may have been cut in two.
            self.reasoned = REASON.search(seen, max(0, len(self.tail) - 64)) is not None
        self.tail = seen[-TAIL_BYTES:]

    async def close(self) -> None:
        """End whatever is still under way."""
        for answer in self.answers:
            answer.stream = None  # httpx ties an answer and its stream in a cycle, and the request hangs on it
        self.answers.clear()
        for reply in self.replies:
            await reply.close()


current: ContextVar[Call | None] = ContextVar("litellm_call", default=None)
