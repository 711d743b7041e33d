"""What litellm's model map says about a model's window, read as a file; litellm itself is never imported for it."""

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

MODEL_MAP = "model_prices_and_context_window_backup.json"


class Facts(msgspec.Struct, frozen=True):
    """What is known about one model; None is unknown."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    supports_reasoning: bool | None = None


class _Entry(msgspec.Struct):
    # The map's sample entry holds prose where numbers belong.
    max_input_tokens: int | float | str | None = None
    max_output_tokens: int | float | str | None = None
    supports_reasoning: bool | str | None = None


def known_model(names: tuple[str | None, ...]) -> Facts:
    """Return what the map says under the first of these names that it knows, or empty facts."""
    entries = _model_map()
    for name in names:
        if name is not None and name in entries:
            return entries[name]
    return Facts()


@lru_cache(maxsize=1)
def _model_map() -> Mapping[str, Facts]:
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return {}
    path = Path(spec.submodule_search_locations[0]) / MODEL_MAP
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=dict[str, _Entry])
    except (OSError, msgspec.DecodeError):
        # Without the map a window is merely unknown: the first overflow teaches it.
        return {}
    return {name: _facts(entry) for name, entry in entries.items()}


def _facts(entry: _Entry) -> Facts:
    return Facts(
        _tokens(entry.max_input_tokens), _tokens(entry.max_output_tokens), entry.supports_reasoning is True or None
    )


def _tokens(value: float | str | None) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 1 else None
