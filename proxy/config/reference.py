"""Writes the table of every key into docs/configuration.md; run as a module, with the document as argument.

It reads the schema only; the text around the table is written by hand.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from transom.policies.options import Policy
from transom.policies.presets import PRESETS
from transom.proxy.config.schema import Config

WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true, false"}


def key_table() -> str:
    """Return a Markdown table of every key: its path, type, unit, default and meaning."""
    lines = ["| key | type | unit | default | meaning |", "|---|---|---|---|---|"]
    lines.extend(_row(path, field) for path, field in _keys(Config, ""))
    return "\n".join(lines)


def preset_table() -> str:
    """Return a Markdown table of what each preset sets."""
    lines = ["| preset | sets |", "|---|---|"]
    for name, values in PRESETS.items():
        sets = ", ".join(f"`{key}: {_yaml(value)}`" for key, value in values.items())
        lines.append(f"| `{name}` | {sets} |")
    return "\n".join(lines)


def fill(text: str) -> str:
    """Return the document with both tables made anew between their marks."""
    for name, table in (("keys", key_table()), ("presets", preset_table())):
        begin, end = f"<!-- {name}: made from the schema -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        inner, step = _inner(field.annotation)
        if inner is None or step:
            yield path, field
        if inner is not None:
            yield from _keys(inner, f"{path}{step}.")


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """Return the model an annotation leads to, and the step to one of it in a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    if get_origin(annotation) in (dict, tuple):
        held = [member for member in get_args(annotation) if member is not Ellipsis][-1]
        if isinstance(held, type) and issubclass(held, BaseModel):
            return held, "[]" if get_origin(annotation) is tuple else ".NAME"
    return None, ""


def _row(path: str, field: FieldInfo) -> str:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    cells = (f"`{path}`", _type(field.annotation), str(extra.get("unit", "")), _default(field), field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(annotation: Any) -> str:
    if annotation is NoneType:
        return "null"
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(members[0])
    if origin is Literal:
        return ", ".join(f"`{member}`" for member in members)
    if origin in (Union, UnionType):
        return " or ".join(_type(member) for member in members)
    if origin in (tuple, dict):
        return _container(annotation, "list" if origin is tuple else "mapping")
    return WORDS[annotation]


def _container(annotation: Any, kind: str) -> str:
    inner, _ = _inner(annotation)
    return kind if inner is not None else f"{kind} of {_type(get_args(annotation)[-2 if kind == 'list' else -1])}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, dict):
        value = {name: _as_written(item) for name, item in value.items()}
    return f"`{_yaml(value)}`"


def _as_written(value: object) -> object:
    if isinstance(value, Policy):
        return value.model_dump(include=set(value.written))
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


def _yaml(value: object) -> str:
    """Write a value as it would stand in YAML, on one line."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    plain: JsonValue = value if isinstance(value, str | int | float | bool) else None
    return plain if isinstance(plain, str) else json.dumps(plain)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        document = Path(argument)
        document.write_text(fill(document.read_text("utf-8")), "utf-8")
