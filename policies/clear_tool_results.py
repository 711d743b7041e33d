"""Put a placeholder in the place of old tool results; asks no model, and leaves every call and its arguments.

1. Nothing is cleared while the token limit holds, nor for the sake of one that protected messages alone exceed. The
   item limit is none of its business: clearing changes no number of items.
2. Results are cleared oldest first, until the view is down to `trim_to` of the limit.
3. All is done in one go of at least `clear_at_least` tokens, or nothing is: each go costs the prompt cache once. Where
   another trimmer follows, a go must also lead most of the way down, or that one cuts: else each request would clear a
   little, and each would cost the cache.
4. The newest `keep_tool_results` results stay, those of the tools in `exclude_tools`, and those of a group that is
   protected: the model has not read the newest ones yet. So do those of a group that the client broke.
5. The placeholder names the tool and says how large the result was. If there is room it lists identifiers found in the
   result, so that an agent can call again for what it saw there.
6. A result whose placeholder would not be smaller stays.
7. Once cleared, always cleared: the result is the beginning of later views.
"""

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.ledger import identifiers
from transom.policies.options import Policy
from transom.policies.protection import Protection
from transom.policies.substitution import substitute
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.view import Substitute

LONGEST_NAME = 64  # characters: the longest name of a tool that providers allow
SMALLEST_RESULT = 20  # tokens: no placeholder is smaller
IDENTIFIERS_TOKENS = 40  # the most a list of identifiers may count,
IDENTIFIERS_SHARE = 8  # and this part of what is cleared
LEAST_OF_THE_WAY = 0.75  # down to the low-water mark
SEARCHED = 20_000  # characters of a result that are searched for identifiers


class ClearToolResults:
    """The `clear_tool_results` trimmer."""

    async def trim(self, request: TrimRequest) -> TrimResult:
        """Clear old results down to the low-water mark if the token limit is exceeded."""
        guard = Protection(request.history, request.policy)
        limits = request.limits.reachable(guard.floor(request.view))
        size, policy = request.size, request.policy
        goal = limits.low_water(size, policy.trim_to).tokens
        if goal is None or not limits.over_tokens(size):
            return unchanged(request)
        cleared: dict[int, Substitute] = {}
        freed = 0
        for position, tool in _old_results(request, guard):
            if size.tokens - freed <= goal and freed >= policy.clear_at_least:
                break
            message = request.history.messages[position]
            placeholder = _placeholder(request, message, tool)
            if placeholder.tokens < message.tokens:
                cleared[position] = placeholder
                freed += message.tokens - placeholder.tokens
        least = LEAST_OF_THE_WAY * (size.tokens - goal) if _is_followed(policy) else 0
        if not cleared or freed < max(policy.clear_at_least, least):
            return unchanged(request)
        return TrimResult(request.view.substituted(cleared), trimmed=True, persist=True)


def _is_followed(policy: Policy) -> bool:
    """Tell whether another trimmer of the policy cuts where this one does too little."""
    cutting = [name for name in policy.trimmers if name != "recall"]
    return "clear_tool_results" in cutting[:-1]


def _old_results(request: TrimRequest, guard: Protection) -> list[tuple[int, str]]:
    """Return the results that may be cleared, oldest first, each with its tool's name (rules 4 and 6)."""
    history, view, policy = request.history, request.view, request.policy
    sent = set(view.positions(len(history)))
    results = sorted(p for g in history.outline.groups if g.kind == "tools" for p in g.members[1:] if p in sent)
    free: list[tuple[int, str]] = []
    for position in results[: max(0, len(results) - policy.keep_tool_results)]:
        group = history.outline.groups[history.outline.owner[position]]
        if guard.covers(group) or history.outline.is_broken(group) or position in view.substitutes:
            continue
        tool = _tool(history, group.members[0], position)
        if tool not in policy.exclude_tools and history.messages[position].tokens > SMALLEST_RESULT:
            free.append((position, tool))
    return free


def _tool(history: History, caller: int, position: int) -> str:
    call_id = history.messages[position].answers
    return next(call.name for call in history.messages[caller].calls if call.id == call_id)


def _placeholder(request: TrimRequest, message: Message, tool: str) -> Substitute:
    name = " ".join(tool.split())[:LONGEST_NAME]
    text = f"[cleared: {name}, {message.tokens:,} tokens; call it again if needed]"
    listed = _listed(request, request.content(message), min(IDENTIFIERS_TOKENS, message.tokens // IDENTIFIERS_SHARE))
    return substitute(message, f"{text}\n{listed}" if listed else text, request.count, request.content)


def _listed(request: TrimRequest, text: str, room: int) -> str:
    """List the first identifiers of a result in at most `room` tokens (rule 5)."""
    listed = ""
    for found in identifiers(text[:SEARCHED]):
        longer = f"{listed}, {found}" if listed else f"It held: {found}"
        if request.count(longer) > room:
            break
        listed = longer
    return listed
