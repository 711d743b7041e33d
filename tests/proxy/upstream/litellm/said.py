"""What a model of any provider says, before it is put into the provider's words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """One answer. `finish` is stop, length or refusal; with calls it is the provider's word for them.

    `cut`: the answer ends without a reason, and without the end of its stream.
    """

    text: str | None = "Yes."
    calls: Sequence[tuple[str, Json]] = ()
    thinking: str | None = None
    finish: str = "stop"
    prompt: int = 100
    cached: int = 0
    completion: int = 10
    cut: bool = False


@dataclass(frozen=True)
class Refused:
    """A refusal in the provider's own words."""

    status: int
    body: Json | bytes
    headers: dict[str, str] = field(default_factory=dict)


def halves(text: str) -> list[str]:
    """Cut a text in two, as it streams."""
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]


def alternation(roles: Sequence[str]) -> str | None:
    """Say what is wrong with the order of roles, or None."""
    if not roles or roles[0] != "user":
        return "does not begin with the user"
    if any(one == other for one, other in pairwise(roles)):
        return "roles do not alternate"
    return None
