"""One chat completion on its way through: what is known of it so far; it does nothing itself."""

import asyncio
import time
from dataclasses import dataclass, field

from transom.policies.tool_limit import Reason
from transom.policies.view import Size
from transom.proxy.budgets import Budget
from transom.proxy.config.settings import Route, Settings
from transom.proxy.modes import Mode
from transom.proxy.passes import Decision, Pass
from transom.proxy.sessions import Conversation
from transom.proxy.threads import Sent
from transom.proxy.wire.chat import ChatCall
from transom.storage.rows import Batch

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Exchange:
    """A request, its place in a conversation, what was decided, and what came of it."""

    request_id: str
    headers: Headers
    settings: Settings  # those the request began with; a reload does not reach it
    call: ChatCall
    route: Route
    mode: Mode
    conversation: Conversation
    budget: Budget
    policy_hash: bytes
    tool_limit: Reason | None
    note: bytes | None  # the message at the end that tells the model of the cap
    storage_failed: bool = False
    started: float = field(default_factory=time.perf_counter)
    request: Pass | None = None
    decision: Decision | None = None
    rehearsal: Decision | None = None  # what would have been sent, where a policy is only watched
    labels: list[str] = field(default_factory=list)
    sent: Sent | None = None
    stable: int = 0
    reply_size: Size = Size(0, 0)  # of the answer's first choice
    status: int = 0
    code: str | None = None  # of the upstream's refusal, for the log
    opened: bool = False  # whether its first rows were handed over, or wait
    pending: Batch | None = None  # rows that wait for those of the answer
    pending_timer: asyncio.TimerHandle | None = None
    upstream_s: float = 0.0  # time spent waiting for the upstream
    waited_s: float = 0.0  # time spent waiting for a summary

    @property
    def tenant(self) -> str:
        """Name of the tenant, as metrics label it."""
        return self.conversation.caller.tenant.name

    @property
    def capped(self) -> bool:
        """Whether this turn gets no further tool calls."""
        return self.tool_limit is not None and self.mode == "on"

    def window_headers(self) -> Headers:
        """Return the response headers that say what became of the request's messages (02-http)."""
        conversation = self.conversation
        found: Headers = [(b"x-transom-policy", self.route.policy_name.encode("ascii", "replace"))]
        if conversation.shown is not None:
            found.append((b"x-session-id", conversation.shown.encode("latin-1")))
        if conversation.heads:
            found.append((b"x-transom-head", b",".join(head.hex().encode() for head in conversation.heads)))
        if self.labels:  # nothing is known yet of a request that still waits for its summary
            found.append((b"x-transom-window", ",".join(self.labels).encode()))
        decision = self.decision or self.rehearsal
        if decision is not None:
            limit = "" if self.budget.shown is None else str(self.budget.shown)
            tokens = f"before={decision.before.tokens};sent={decision.sent.tokens};limit={limit};stable={self.stable}"
            found.append((b"x-transom-tokens", tokens.encode()))
        if self.tool_limit is not None:
            found.append((b"x-transom-tool-limit", self.tool_limit.encode()))
        if self.storage_failed:
            found.append((b"x-transom-storage", b"failed"))
        return found

    def elapsed(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self.started
