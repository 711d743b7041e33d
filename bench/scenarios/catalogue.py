"""All scenarios by name, in the order they are run; those of the second list take minutes and run only if named."""

from collections.abc import Awaitable, Callable

from bench.measure import Run
from bench.scenarios import large, long, many, short

Scenario = Callable[[Run], Awaitable[None]]

USUAL: dict[str, Scenario] = {
    "S1": short.calls,
    "S2": short.streams,
    "S3": long.turns,
    "S4": many.conversations,
    "S5": large.histories,
    "S6": long.slow_summaries,
}
LONGER: dict[str, Scenario] = {"sessions": many.sessions, "body": large.bodies, "steady": many.steady}
SCENARIOS = USUAL | LONGER


def title(name: str) -> str:
    """Return what a scenario is, in a sentence."""
    return (SCENARIOS[name].__doc__ or "").partition("\n")[0]
