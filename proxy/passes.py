"""One pass of a policy over one request: what goes in, and what comes out; the deciding itself is `windowing`'s."""

from dataclasses import dataclass, field

from transom.policies.history import History
from transom.policies.view import Size, View
from transom.proxy.budgets import Budget
from transom.proxy.config.settings import Route
from transom.proxy.sessions import Conversation
from transom.proxy.threads import Sent, SessionState, Thread
from transom.storage.rows import BaselineRow, StepRow


@dataclass(frozen=True, slots=True)
class Pass:
    """One request, as far as windowing is concerned."""

    conversation: Conversation
    route: Route
    budget: Budget
    policy: bytes  # hash of the effective policy
    cut_policy: bytes

    @property
    def state(self) -> SessionState:
        """The session, as memory knows it."""
        return self.conversation.state

    @property
    def thread(self) -> Thread:
        """The thread the request goes on with."""
        return self.conversation.thread

    @property
    def history(self) -> History:
        """The thread under this request's preamble."""
        return self.conversation.history

    @property
    def preamble(self) -> bytes:
        """Id of the preamble."""
        return self.conversation.preamble

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """What a step is found by, within its session."""
        return (self.conversation.head, self.preamble, self.policy)


@dataclass(slots=True)
class Decision:
    """What is sent, what it was decided by, and what must be recorded of it."""

    view: View
    before: Size
    sent: Size
    labels: list[str]
    removed: dict[str, int] = field(default_factory=dict)  # trimmer -> items
    step: StepRow | None = None
    baselines: list[BaselineRow] = field(default_factory=list)
    decisive: bool = False  # whether the step must be committed before the request is sent
    over_budget: bool = False
    waited_s: float = 0.0  # seconds spent waiting for summaries


def before(request: Pass) -> Size:
    """Measure the whole thread."""
    return Size(request.history.total_tokens, request.history.total_items)


def stable_tokens(previous: Sent | None, request: Pass, decision: Decision) -> int:
    """Count the tokens of a sent prompt that repeat the thread's previous one: what a prompt cache can reuse."""
    if previous is None or previous.preamble != request.preamble:
        return 0
    history, old, new = request.history, previous.view, decision.view
    same_frame = (old.summary, old.head, old.start) == (new.summary, new.head, new.start)
    if same_frame and (old.omitted, old.substitutes, old.recalled) == (new.omitted, new.substitutes, new.recalled):
        return previous.tokens
    total = history.preamble_tokens
    if (old.summary_message and old.summary_message.id) != (new.summary_message and new.summary_message.id):
        return total
    total += new.summary_message.tokens if new.summary_message else 0
    for a, b in zip(old.positions(previous.length), new.positions(len(history)), strict=False):
        recalled = next((r for r in (old.recalled, new.recalled) if r is not None and r.before == a), None)
        if a != b or old.substitutes.get(a) != new.substitutes.get(b) or recalled is not None:
            break
        total += history.messages[a].tokens
    return total
