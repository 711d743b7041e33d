"""The trimmers a policy may name and the order they run in; it knows their names only, not what they do."""

from difflib import get_close_matches

from pydantic_core import PydanticCustomError

TRIMMERS = (
    "none",
    "context_window",
    "compress",
    "truncate",
    "clear_tool_results",
    "count",
    "token_budget",
    "summarize",
    "recall",
)
"""The names a strategy may hold besides `package.module:Class`."""

SUMMARIZING = frozenset({"compress", "summarize"})
"""The trimmers that call a model."""

CONTEXT_WINDOW = ("compress", "truncate")


def in_order(strategy: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the trimmers as they run: `context_window` spelled out, `recall` last, `none` left out."""
    expanded = _expand(_names(strategy))
    ordered = [name for name in expanded if name not in ("none", "recall")]
    return (*ordered, "recall") if "recall" in expanded else tuple(ordered)


def check_strategy(strategy: str | tuple[str, ...]) -> None:
    """Raise PydanticCustomError where a strategy is empty, names no trimmer or one twice, or `none` beside others."""
    names = _names(strategy)
    if not names:
        raise PydanticCustomError("strategy", "must name at least one trimmer; write none to switch windowing off")
    for name in names:
        _check_trimmer(name)
    expanded = _expand(names)
    if len(set(expanded)) < len(expanded):
        raise PydanticCustomError(
            "strategy", "names a trimmer twice (context_window is short for [compress, truncate])"
        )
    if "none" in names and len(names) > 1:
        raise PydanticCustomError("strategy", "holds none beside other trimmers; none must stand alone")


def _names(strategy: str | tuple[str, ...]) -> tuple[str, ...]:
    return (strategy,) if isinstance(strategy, str) else strategy


def _expand(names: tuple[str, ...]) -> tuple[str, ...]:
    expanded: list[str] = []
    for name in names:
        expanded.extend(CONTEXT_WINDOW if name == "context_window" else (name,))
    return tuple(expanded)


def _check_trimmer(name: str) -> None:
    module, colon, attribute = name.partition(":")
    own = bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))
    if name not in TRIMMERS and not own:
        near = get_close_matches(name, TRIMMERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TRIMMERS)}, or package.module:Class"
        raise PydanticCustomError("trimmer", "names no trimmer; {hint}", {"hint": hint})
