"""Conversations that clients may send, as hypothesis strategies.

`acceptable` ones every provider takes: each call's results stand right behind it. `legal` ones pair up, but results may
be late. `broken` ones have orphans and unanswered calls anywhere.
"""

from typing import NamedTuple

from hypothesis import strategies as st

from tests.policies.builders import Writer, calls, function_call, function_result, policy, result, spoken, system
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy


class Move(NamedTuple):
    """What happens next: the words of it, how many calls, and how its results are shuffled."""

    kind: str
    tokens: int
    batch: int
    order: int


KINDS = ("user", "user", "assistant", "tools", "tools", "tools", "legacy", "system", "empty", "empty answer")


def moves(most: int = 16, *, least: int = 1, kinds: tuple[str, ...] = KINDS) -> st.SearchStrategy[list[Move]]:
    one = st.builds(Move, st.sampled_from(kinds), st.integers(4, 40), st.integers(1, 3), st.integers(0, 5))
    return st.lists(one, min_size=least, max_size=most)


def acceptable(script: list[Move]) -> list[Message]:
    """Play a script so that every provider accepts each beginning of what comes of it."""
    return [message for place, move in enumerate(script) for message in _played(place, move)]


def _played(place: int, move: Move, prefix: str = "c") -> list[Message]:
    kind, tokens = move.kind, move.tokens
    if kind == "tools":
        return _round(place, move, prefix)
    if kind == "legacy":
        return [function_call(f"f{move.batch}"), function_result(f"f{move.batch}", f"result {place}", tokens)]
    if kind == "nothing":
        return []
    if kind.startswith("empty"):
        return [spoken("user" if kind == "empty" else "assistant", "", 4)]
    return [system(f"rule {place}", tokens) if kind == "system" else spoken(kind, f"{kind} {place}", tokens)]


def _round(place: int, move: Move, prefix: str) -> list[Message]:
    """Play one response with parallel calls; with the same prefix ids come again in later rounds."""
    ids = [f"{prefix}{n}" for n in range(move.batch)]
    made = calls(*((i, f"tool{move.order}", "{}") for i in ids), text=f"round {place}" if move.order % 2 else "")
    answered = ids[::-1] if move.order > 2 else ids
    return [made, *(result(i, f"result {place}", move.tokens) for i in answered)]


def late(script: list[Move], delays: list[int]) -> list[Message]:
    """Play a script, results up to some messages late; all pairs stay pairs."""
    messages = acceptable(script)
    for place, delay in enumerate(delays[: len(messages)]):
        if messages[place].answers is not None:
            message = messages.pop(place)
            messages.insert(min(len(messages), place + delay), message)
    return messages


def torn(script: list[Move], missing: set[int]) -> list[Message]:
    """Play a script without some of its messages: results without calls, calls without results."""
    played = [message for place, move in enumerate(script) for message in _played(place, move, f"{place}.")]
    return [m for p, m in enumerate(played) if p not in missing or m.role == "user"] or played


limits = st.builds(
    Limits,
    st.none() | st.integers(10, 400),
    st.none() | st.integers(1, 25),
).filter(lambda one: one != Limits())

policies: st.SearchStrategy[Policy] = st.fixed_dictionaries(
    {
        "keep_recent_turns": st.integers(1, 4),
        "keep_recent_iterations": st.integers(0, 4),
        "keep_verbatim": st.sampled_from(["turns", "fill"]),
        "keep_first_turns": st.integers(0, 2),
        "trim_to": st.sampled_from([0.1, 0.5, 0.7, 1.0]),
        "mid_system": st.sampled_from(["keep", "ordinary"]),
    }
).map(lambda keys: policy(**keys))

preambles = st.lists(st.integers(4, 30), max_size=2).map(
    lambda weights: [system(f"instruction {n}", tokens) for n, tokens in enumerate(weights)]
)

writers = st.builds(
    Writer,
    st.lists(st.none() | st.integers(5, 60), min_size=1, max_size=4),
    st.integers(5, 40),
)
