"""Turns what pydantic found wrong into sentences a person can act on, never with the value of a text.

It knows nothing of files.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from transom.proxy.clipping import clipped
from transom.proxy.config.places import KeyPath

FOREIGN_SECTIONS = {
    "litellm_settings": "LiteLLM's proxy",
    "general_settings": "LiteLLM's proxy",
    "router_settings": "LiteLLM's proxy",
    "environment_variables": "LiteLLM's proxy",
    "credential_list": "LiteLLM's proxy",
    "mcp_servers": "LiteLLM's proxy",
    "guardrails": "LiteLLM's proxy",
}


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` with the nearest known word, or nothing where none is near."""
    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def unknown_key(word: str, known: Iterable[str]) -> str:
    """Say that a key is unknown, with the nearest known one, else all there are."""
    if word in FOREIGN_SECTIONS:
        return f"belongs to {FOREIGN_SECTIONS[word]} and has no effect here; remove it"
    names = sorted(known)
    return "unknown key" + (nearest(word, names) or f"; the keys here are {', '.join(names)}")


def explain(error: ErrorDetails, root: type[BaseModel]) -> tuple[KeyPath, str]:
    """Return the key path and the sentence of one error."""
    path = error["loc"]
    holder, field = _find(root, path)
    if error["type"] == "extra_forbidden":
        return path, unknown_key(str(path[-1]), holder.model_fields if holder is not None else ())
    return path, _sentence(error, field)


def _sentence(error: ErrorDetails, field: FieldInfo | None) -> str:
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    unit = _unit(field)
    if kind in _BOUNDS:
        return f"{_BOUNDS[kind].format(**context)}{unit}, not {clipped(str(given))}"
    if kind in _TYPES:
        return f"must be {_or_null(_TYPES[kind], field)}{unit}"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "")
        words = expected.replace(" or ", ", ").split(", ")
        return f"must be {expected}" + (nearest(given, words) if isinstance(given, str) else "")
    return error["msg"] if kind not in _OF_PYDANTIC else "cannot be used as it is written"


def _or_null(expected: str, field: FieldInfo | None) -> str:
    if field is None or NoneType not in get_args(field.annotation):
        return expected
    return f"{expected.replace(' or ', ', ')} or null"


def _find(root: type[BaseModel], path: KeyPath) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """Walk down the schema: return the model that holds the last key of a path, and that key's field."""
    here: Any = root
    holder: type[BaseModel] | None = None
    field: FieldInfo | None = None
    for part in path:
        holder = here if isinstance(here, type) and issubclass(here, BaseModel) else None
        field = holder.model_fields.get(str(part)) if holder is not None else None
        here = field.annotation if field is not None else _element(here)
        here = _unwrap(here)
    return holder, field


def _unwrap(annotation: Any) -> Any:
    """Strip `| None` off an annotation."""
    members = [member for member in get_args(annotation) if member is not NoneType]
    return members[0] if get_origin(annotation) in (Union, UnionType) and len(members) == 1 else annotation


def _element(annotation: Any) -> Any:
    """Return what a mapping or a list of this annotation holds."""
    members = [member for member in get_args(annotation) if member is not Ellipsis]
    return members[-1] if get_origin(annotation) in (dict, tuple) and members else None


def _unit(field: FieldInfo | None) -> str:
    extra = field.json_schema_extra if field is not None else None
    return f" (unit: {extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""


_OF_PYDANTIC = frozenset(get_args(ErrorType))
"""The faults that pydantic words itself; all others are worded by the schema."""
_BOUNDS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
}
_TYPES = {
    "missing": "written; it has no default",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text (put it in quotes if it looks like a number)",
    "string_too_short": "longer than an empty text",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "a mapping of names",
    "mapping_type": "a mapping of names",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}
