"""Tell when a turn has had enough tool calls; counted on the raw thread, so that no window can change it.

1. Calls and rounds are counted after the last user message; a parallel batch that crosses the cap passes whole.
2. A cap is reached when as many calls, or rounds, were made as it allows: the model then gets no further ones.
3. Repetition: the newest rounds made the same calls, with the same arguments, and got the same results.
"""

from collections.abc import Callable
from typing import Literal

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.options import Policy

Reason = Literal["calls", "rounds", "repeated"]

NOTE = (
    "[Tool budget] The tool budget of this turn is used up: no further tool calls are possible now. Answer with what "
    "you have, and say plainly what is not finished."
)
GAVE_UP = (
    "The limit of tool calls for this turn stopped it before it was finished. Send another message to go on from here."
)


def tool_limit_reached(history: History, policy: Policy, content: Callable[[Message], str]) -> Reason | None:
    """Return which cap the current turn has reached, if any. `content` gives a result's text, for comparing."""
    outline = history.outline
    calls, rounds = policy.effective_tool_calls_cap, policy.effective_tool_rounds_cap
    repeats = policy.effective_repeated_calls_cap
    if calls is not None and outline.calls_since_user >= calls:
        return "calls"
    if rounds is not None and outline.rounds_since_user >= rounds:
        return "rounds"
    if repeats is not None and outline.rounds_since_user >= repeats and _repeated(history, repeats, content):
        return "repeated"
    return None


def _repeated(history: History, repeats: int, content: Callable[[Message], str]) -> bool:
    """Tell whether the newest `repeats` rounds are the same round (rule 3)."""
    outline, messages = history.outline, history.messages
    rounds = [g for g in outline.iterations(outline.current_turn) if g.kind == "tools"][-repeats:]
    first: object = None
    for group in reversed(rounds):
        call, *results = group.members
        asked = messages[call].calls
        order = {c.id: place for place, c in enumerate(asked)}
        results.sort(key=lambda p: order.get(messages[p].answers or "", len(order)))  # parallel calls end in any order
        same = ([(c.name, c.arguments) for c in asked], [content(messages[p]) for p in results])
        if first is not None and same != first:
            return False
        first = same
    return True
