"""What litellm's files say about a model's window and the providers there are; litellm is never imported for it."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import msgspec

Read = TypeVar("Read")

MODEL_MAP = "model_prices_and_context_window_backup.json"
PROVIDERS = "provider_endpoints_support_backup.json"
COMPATIBLE = "llms/openai_like/providers.json"
# The enumeration of providers, in Python: its values are read as text, for an import of the package takes seconds.
ENUMERATION = "types/utils.py"
MEMBERS = re.compile(rb"^class LlmProviders\(.*\n((?:[ \t].*\n|\n)*)", re.MULTILINE)
MEMBER = re.compile(rb'^ +\w+ = "([^"]+)"', re.MULTILINE)


class Facts(msgspec.Struct, frozen=True):
    """What is known about one model; None is unknown."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    supports_reasoning: bool | None = None
    provider: str | None = None


class _Entry(msgspec.Struct):
    # The map's sample entry holds prose where numbers belong.
    max_input_tokens: int | float | str | None = None
    max_output_tokens: int | float | str | None = None
    supports_reasoning: bool | str | None = None
    litellm_provider: str | None = None


class _Providers(msgspec.Struct):
    providers: dict[str, msgspec.Raw]


def known_model(names: tuple[str | None, ...]) -> Facts:
    """Return what the map says under the first of these names that it knows, or empty facts."""
    entries = model_map()
    for name in names:
        if name is not None and name in entries:
            return entries[name]
    return Facts()


@lru_cache(maxsize=1)
def known_providers() -> frozenset[str]:
    """Return the names of providers that litellm takes before a model's name; empty where its files are missing."""
    listed = _read(PROVIDERS, _Providers)
    prefixes = {prefix for prefix, slash, _ in (name.partition("/") for name in model_map()) if slash}
    if listed is None:
        return frozenset()
    return frozenset(prefixes.union(listed.providers, _read(COMPATIBLE, dict[str, msgspec.Raw]) or (), _enumerated()))


@lru_cache(maxsize=1)
def model_map() -> Mapping[str, Facts]:
    """Return what the map says, by model name, with or without a provider before it; empty where there is no map."""
    # Without the map a window is merely unknown: the first overflow teaches it.
    entries = _read(MODEL_MAP, dict[str, _Entry]) or {}
    alike: dict[Facts, Facts] = {}  # what is known of most models is known of others too
    facts = ((name, _facts(entry)) for name, entry in entries.items())
    return {name: alike.setdefault(one, one) for name, one in facts}


def _enumerated() -> list[str]:
    found = MEMBERS.search(_bytes(ENUMERATION) or b"")
    return [name.decode() for name in MEMBER.findall(found[1])] if found is not None else []


def _read(name: str, kind: type[Read]) -> Read | None:
    """Decode a JSON file of the package, or return None where there is none that can be read."""
    held = _bytes(name)
    try:
        return msgspec.json.decode(held, type=kind) if held is not None else None
    except msgspec.DecodeError:
        return None


def _bytes(name: str) -> bytes | None:
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    try:
        return (Path(spec.submodule_search_locations[0]) / name).read_bytes()
    except OSError:
        return None


def _facts(entry: _Entry) -> Facts:
    return Facts(
        _tokens(entry.max_input_tokens),
        _tokens(entry.max_output_tokens),
        entry.supports_reasoning is True or None,
        entry.litellm_provider,
    )


def _tokens(value: float | str | None) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 1 else None
