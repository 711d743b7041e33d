"""Which tools a user's text asks the demo model to call, in which steps, with which arguments."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from transom.proxy.upstream.demo.request import Function

__all__ = ["Planned", "fill", "plan"]

Planned = tuple[str, str]
"""A function's name and its arguments as JSON."""

STEP = re.compile(r"[;,.]?\s*\bthen\b|;|\bafter that\b", re.IGNORECASE)
REQUEST = re.compile(
    r"\?|^\W*(?:please|can|could|would|what|how|when|where|who|which|is|are|check|get|find|look|search|tell|show|call"
    r"|use|run|add|book|send|read|list|compute|calculate|and)\b",
    re.IGNORECASE,
)
TIMES = re.compile(r"\b(\d{1,3})\s+times\b", re.IGNORECASE)
PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,;]+)")
NAMES = r"[A-Z][\w'’-]*(?:\s+[A-Z][\w'’-]*)*"
SUBJECTS = re.compile(rf"\b(?:in|for|of|to|about|from|at|on)\s+({NAMES}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+){NAMES})*)")
BETWEEN = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+")
QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
CODE = re.compile(r"\b[\w-]{0,40}\d[\w-]{0,40}\b")
DEFAULTS: dict[object, object] = {"boolean": False, "array": [], "object": {}, "null": None}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
WORD = re.compile(r"[a-z]+|[A-Z][a-z]*")
COMMON = frozenset(
    {"get", "set", "list", "find", "fetch", "read", "make", "do", "run", "the", "a", "to", "by", "of", "in"}
)


def plan(text: str, functions: list[Function]) -> list[list[Planned]]:
    """Return the steps a text asks for, each with its parallel calls; none if it asks for no offered tool."""
    steps: list[list[Planned]] = []
    for part in STEP.split(text):
        calls = _named(part, functions) or _meant(part, functions)
        times = TIMES.search(part)
        if calls and times:
            steps += [calls] * int(times[1])
        elif calls:
            steps.append(calls)
    return steps


def _named(text: str, functions: list[Function]) -> list[Planned]:
    """Return calls of the tools that a text names, in its order; what follows a name are its arguments."""
    by_name = {function.name: function for function in functions}
    if not by_name:
        return []
    pattern = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    found = list(re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", text))
    calls: list[Planned] = []
    end = len(text)
    for match in reversed(found):
        calls[:0] = _calls(by_name[match[0]], text[match.end() : end])
        end = match.start()
    return calls


def _meant(text: str, functions: list[Function]) -> list[Planned]:
    """Return calls of the tool whose name shares the most words with a request, the first of equals."""
    if not functions or not REQUEST.search(text):
        return []
    words = {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())}

    def shared(function: Function) -> int:
        return len(words & {word.lower().rstrip("s") for word in WORD.findall(function.name)} - COMMON)

    meant = max(functions, key=shared)
    return _calls(meant, text) if shared(meant) else []


def _calls(function: Function, text: str) -> list[Planned]:
    """Return one call, or one for each of the subjects that a text lists."""
    start = text.find("{")
    if start >= 0 and text.rfind("}") > start:
        written = text[start : text.rfind("}") + 1]
        try:
            msgspec.json.decode(written, type=dict[str, Any])
        except msgspec.DecodeError:
            pass
        else:
            return [(function.name, written)]
    pairs = {name: value.strip("\"'") for name, value in PAIR.findall(text)}
    if pairs:
        return [(function.name, fill(function, text, pairs=pairs))]
    subjects = _subjects(text)
    if _strings(function) > 1:
        return [(function.name, fill(function, text, subjects))]
    return [(function.name, fill(function, text, [subject])) for subject in subjects]


def _strings(function: Function) -> int:
    """Return how many texts of its own choice a call must be given."""
    parameters = function.parameters or {}
    rules = [(parameters.get("properties") or {}).get(name) for name in parameters.get("required") or ()]
    return sum(1 for rule in rules if isinstance(rule, dict) and rule.get("type") == "string" and "enum" not in rule)


def _subjects(text: str) -> list[str]:
    quoted = [first or second for first, second in QUOTED.findall(text)]
    if quoted:
        return quoted
    listed = [name for found in SUBJECTS.findall(text) for name in BETWEEN.split(found) if name]
    if listed:
        return listed
    code = CODE.search(TIMES.sub("", text))
    return [code[0] if code else text.strip(" .?!,:")[:80]]


def fill(function: Function, text: str, subjects: Sequence[str] = (), pairs: dict[str, str] | None = None) -> str:
    """Return arguments as JSON: written pairs, then for what is required the text's numbers and its subjects.

    Args:
        function: the offer, with its parameters as a JSON schema.
        text: where numbers and words of an enum are looked for.
        subjects: for the strings, in their order; then the text itself.
        pairs: written as `name=value`; names the schema does not know are dropped.
    """
    parameters = function.parameters or {}
    properties = {
        name: rules for name, rules in (parameters.get("properties") or {}).items() if isinstance(rules, dict)
    }
    required = parameters.get("required") or ([] if pairs else list(properties)[:1])
    numbers, names = iter(NUMBER.findall(text)), iter(subjects)
    arguments: dict[str, object] = {}
    for name, rules in properties.items():
        kind = rules.get("type")
        if pairs and name in pairs:
            arguments[name] = _typed(kind, pairs[name])
        elif name not in required:
            continue
        elif rules.get("enum"):
            arguments[name] = next((one for one in rules["enum"] if str(one).lower() in text.lower()), rules["enum"][0])
        elif kind in ("number", "integer"):
            arguments[name] = _typed(kind, next(numbers, "0"))
        elif kind in DEFAULTS:
            arguments[name] = DEFAULTS[kind]
        else:
            arguments[name] = next(names, text.strip(" .?!,:")[:80])
    return msgspec.json.encode(arguments).decode()


def _typed(kind: object, value: str) -> object:
    """Return a written value in the type that the schema asks for; as text if it is not of that type."""
    if kind in ("number", "integer") and NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    if kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value
