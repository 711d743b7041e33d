"""How large a summary may be, and how much of a tool result its writer is shown; knows limits, no texts and no model.

A summary is paid for three times: when it is written, with every request that carries it, and by the room it takes,
for the next fold comes the sooner. So it is sized by the room there is:

1. `summary_max_tokens`, where somebody wrote it, is the size of the text; the list of identifiers gets half as much
   beside it.
2. Else the text gets an eighth of the token limit, within 256 and 2,048 tokens; without a token limit 1,024.
3. But where preamble and pinned messages take more than a quarter of the low-water mark, text and list together get
   `SHARE_OF_ROOM` of what is left below it, at least 256 tokens, and where that is little share it equally.
4. Of one tool result the summariser sees half of what the text may hold, within 256 and 2,000 characters: a small
   summary has no place for more, and what is read is paid.
"""

from dataclasses import dataclass

from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.render import ELIDE_OVER

SMALLEST, LARGEST = 256, 2_048  # tokens
LIMIT_SHARE = 8  # the text gets this part of the limit
WITHOUT_LIMIT = 1_024
LARGE_SHARE = 0.25  # of the low-water mark: preamble and pinned messages that leave a summary less than usual
SHARE_OF_ROOM = 0.35
FRAME_TOKENS = 64  # what label and frame of a summary message add to its text, generously
SHORTEST_RESULT = 256  # characters
RESULT_CHARACTERS = 2  # for each token of the text, of about four characters


@dataclass(frozen=True, slots=True)
class SummarySize:
    """Sizes of one summary: o200k tokens of its `text` and of its `ledger`, characters shown of each `result`."""

    text: int = 0
    ledger: int = 0
    result: int = ELIDE_OVER

    @property
    def message(self) -> int:
        """The most the whole message counts, the user's constraints left aside."""
        return self.text + self.ledger + FRAME_TOKENS


def summary_size(policy: Policy, limits: Limits, fixed: int) -> SummarySize:
    """Return the sizes of a summary under these limits; `fixed` are the tokens of preamble and pinned messages."""
    text, ledger = _sizes(policy, limits, fixed)
    return SummarySize(text, ledger, min(max(text * RESULT_CHARACTERS, SHORTEST_RESULT), ELIDE_OVER))


def _sizes(policy: Policy, limits: Limits, fixed: int) -> tuple[int, int]:
    if policy.summary_max_tokens is not None:
        return policy.summary_max_tokens, policy.summary_max_tokens // 2
    if limits.tokens is None:
        return WITHOUT_LIMIT, WITHOUT_LIMIT // 2
    text = min(max(limits.tokens // LIMIT_SHARE, SMALLEST), LARGEST)
    goal = limits.tokens * policy.trim_to
    if fixed <= LARGE_SHARE * goal:
        return text, text // 2
    room = max(SMALLEST, int((goal - fixed) * SHARE_OF_ROOM))
    ledger = min(text, room) // 2
    return min(text, room - ledger), ledger
