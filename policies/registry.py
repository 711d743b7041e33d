"""Turn the names of a strategy into trimmers; one literal table, and a door for your own."""

from collections.abc import Callable
from typing import cast

from transom.policies.compress import Compress
from transom.policies.trimmer import Trimmer
from transom.policies.truncate import Truncate

BUILT_IN: dict[str, Callable[[], Trimmer]] = {
    "compress": Compress,
    "truncate": Truncate,
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
