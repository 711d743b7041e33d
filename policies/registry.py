"""Turn the names of a strategy into trimmers; one literal table, and a door for your own.

1. Each name of a strategy has one trimmer, but `none`, which has none, and `context_window`, which is short for two.
2. Trimmers come in the order of their names.
3. A name with a colon is somebody's own trimmer: whoever may load it does, and it must have the port's one method.
4. Any other name is an error.
"""

from collections.abc import Callable
from typing import cast

from transom.policies.clear_tool_results import ClearToolResults
from transom.policies.compress import Compress
from transom.policies.count import Count
from transom.policies.recall import Recall
from transom.policies.summarize import Summarize
from transom.policies.token_budget import TokenBudget
from transom.policies.trimmer import Trimmer
from transom.policies.truncate import Truncate

BUILT_IN: dict[str, Callable[[], Trimmer]] = {
    "compress": Compress,
    "truncate": Truncate,
    "clear_tool_results": ClearToolResults,
    "count": Count,
    "token_budget": TokenBudget,
    "summarize": Summarize,
    "recall": Recall,
}


class UnknownTrimmer(Exception):
    """A strategy names a trimmer that does not exist."""


def trimmers(names: tuple[str, ...], load: Callable[[str], object]) -> tuple[tuple[str, Trimmer], ...]:
    """Return `(name, trimmer)` in the order they run.

    `load` imports `package.module:Class` and is only called for names with a colon: importing is I/O, and a policy
    does none. Raises UnknownTrimmer for a name that is neither built in nor loadable.
    """
    found: list[tuple[str, Trimmer]] = []
    for name in names:
        if ":" in name:
            made = load(name)
            if not hasattr(made, "trim"):
                raise UnknownTrimmer(f"{name} has no method trim(request)")
            found.append((name, cast(Trimmer, made)))  # checked by its one method
        elif name in BUILT_IN:
            found.append((name, BUILT_IN[name]()))
        else:
            raise UnknownTrimmer(f"there is no trimmer {name!r}")
    return tuple(found)
