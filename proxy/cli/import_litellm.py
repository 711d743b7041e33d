"""`transom import litellm FILE`: writes a configuration from the config.yaml of a LiteLLM proxy.

What Transom has no counterpart for is left out and named, with its line and the reason, on standard error. Keys that
stand in the file are never written or printed: in their place stands the name of an environment variable.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from transom.proxy.config.consistency import NO_BALANCER
from transom.proxy.config.model_entry import LiteLLMParams, ModelInfo, known_info, known_param, refusal
from transom.proxy.config.places import Document, Fault, KeyPath, Tree, read_yaml
from transom.proxy.config.resolve import FROM_ENVIRONMENT, FROM_FILE
from transom.proxy.config.windows import known_model

HEAD = """\
# Made by `transom import litellm` from {source}.
# `transom check` says what it comes to; what was left out stands in the import's messages.

"""
SECRET = re.compile(r"key|secret|token|password|credential|authorization|cookie", re.IGNORECASE)
# Parameters of such names that hold no secret.
PUBLIC = frozenset({"aws_access_key_id", "aws_web_identity_token", "token_exchange_endpoint"})
SECTIONS = {
    "router_settings": "Transom is no router; put one in front of or behind it",
    "environment_variables": "set them in the environment of the process",
    "guardrails": "are not run here; keep them in front of or behind Transom",
    "include": "name the included files to this command one by one",
    "callbacks": "Transom calls nobody; metrics are at /metrics",
}
NO_COUNTERPART = "has no counterpart here"
SETTINGS = {
    "callbacks": "Transom calls nobody; metrics are at /metrics",
    "success_callback": "Transom calls nobody; metrics are at /metrics",
    "failure_callback": "Transom calls nobody; metrics are at /metrics",
    "fallbacks": "Transom is no router; put one in front of or behind it",
    "context_window_fallbacks": "not needed: what is too long is cut to fit",
    "request_timeout": "limits.first_byte_s, idle_stream_s and total_s bound calls here",
    "num_retries": "clients retry; Transom repeats only what it makes smaller",
    "cache": "answers are not cached",
    "database_url": "storage.url is Transom's own database",
    "modify_params": "requests are sent as they are",
}
IDLE = "has no effect here"


@dataclass(slots=True)
class Import:
    """What is made of one file, and what was said about it."""

    document: Document
    made: Tree = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)

    def drop(self, path: KeyPath, reason: str) -> None:
        """Note what is left out."""
        self._note("left out", self.document.fault(path, reason))

    def change(self, path: KeyPath, reason: str) -> None:
        """Note what is written otherwise."""
        self._note("changed", self.document.fault(path, reason))

    @property
    def said(self) -> list[str]:
        """What was said, in the order of the file's lines."""
        return [text for _, text in sorted(self.notes, key=lambda note: note[0])]

    def _note(self, what: str, fault: Fault) -> None:
        self.notes.append((fault.place.line or 0, f"{what}: {fault}"))


def import_litellm(source: Path, output: Path | None, *, overwrite: bool = False) -> int:
    """Write the configuration to a file or to standard output; return 0, or 1 where it cannot be made or written.

    Raises ConfigError where the file cannot be read.
    """
    if output is not None and output.exists() and not overwrite:
        sys.stderr.write(f"{output}: is there already; --force overwrites it\n")
        return 1
    made = convert(read_yaml(source, str(source)))
    for line in made.said:
        sys.stderr.write(line + "\n")
    if not made.made["model_list"]:
        sys.stderr.write(f"{source}: holds no model that can be taken over\n")
        return 1
    text = HEAD.format(source=source.name) + yaml.safe_dump(made.made, sort_keys=False, allow_unicode=True)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, "utf-8")
    return 0


def convert(document: Document) -> Import:
    """Return the configuration that a LiteLLM proxy's amounts to."""
    work = Import(document)
    settings = _section(document.tree, "litellm_settings")
    drop_params = settings.get("drop_params") is True
    work.made["model_list"] = list(_models(work, drop_params))
    work.made["policies"] = {"default": {"preset": "chat"}}
    _tenants(work)
    for name, held in document.tree.items():
        if name == "litellm_settings":
            _settings(work, name, held, kept="drop_params" if drop_params else None)
        elif name == "general_settings":
            _settings(work, name, held, kept="master_key")
        elif name != "model_list":
            work.drop((name,), SECTIONS.get(name, NO_COUNTERPART))
    return work


def _section(tree: Tree, name: str) -> Tree:
    held = tree.get(name)
    return held if isinstance(held, dict) else {}


def _settings(work: Import, section: str, held: object, kept: str | None) -> None:
    for key in held if isinstance(held, dict) else ():
        if key != kept:
            work.drop((section, key), SETTINGS.get(key, NO_COUNTERPART))


def _tenants(work: Import) -> None:
    """Let clients keep the key that LiteLLM's proxy asked them for."""
    master = _section(work.document.tree, "general_settings").get("master_key")
    if isinstance(master, str):
        path = ("general_settings", "master_key")
        work.made["tenants"] = {"main": {"keys": [_secret(work, path, master, "TRANSOM_MAIN_KEY")]}}
        work.change(path, "is the key of the tenant main")


def _models(work: Import, drop_params: bool) -> Iterator[Tree]:
    entries = work.document.tree.get("model_list")
    seen: set[str] = set()
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        path: KeyPath = ("model_list", index)
        name = entry.get("model_name") if isinstance(entry, dict) else None
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        target = params.get("model") if isinstance(params, dict) else None
        if not isinstance(name, str) or not isinstance(target, str):
            work.drop(path, "is no model with a model_name and litellm_params.model")
        elif reason := _unfit(name, target, seen):
            work.drop(path, f"{name} {reason}")
        else:
            seen.add(name)
            yield _model(work, path, entry, drop_params)


def _unfit(name: str, target: str, seen: set[str]) -> str | None:
    if name in seen:
        return f"is there already; {NO_BALANCER}"
    if "*" in name and name != "*":
        return 'is a pattern; write its models one by one, or "*" for any name'
    if target == "*":
        return "names no provider for any name; write one, as in openai/*"
    if "*" in target and name != "*":
        return "has a * in litellm_params.model under a name without one"
    return None


def _model(work: Import, path: KeyPath, entry: Tree, drop_params: bool) -> Tree:
    where: KeyPath = (*path, "litellm_params")
    prefix = "".join(c if c.isalnum() else "_" for c in entry["model_name"]).strip("_").upper() or "ANY"
    held = _with_openai(work, where, entry["litellm_params"])
    idle = LiteLLMParams.model_construct(**held).idle_params
    params: Tree = {}
    for key, value in held.items():
        if reason := _not_taken_over(key, idle):
            work.drop((*where, key), reason)
        else:
            params[key] = _guarded(work, (*where, key), value, prefix)
    if drop_params and LiteLLMParams.model_construct(**params).provider == "litellm":
        params.setdefault("drop_params", True)
    made = {"model_name": entry["model_name"], "litellm_params": params}
    info = _info(work, (*path, "model_info"), entry.get("model_info"))
    for key in entry.keys() - {"model_name", "litellm_params", "model_info"}:
        work.drop((*path, key), NO_COUNTERPART)
    return made | ({"model_info": info} if info else {})


def _with_openai(work: Import, path: KeyPath, params: Tree) -> Tree:
    """Return the parameters with the provider written, where LiteLLM takes a bare model's name for OpenAI's."""
    target = params["model"]
    if "/" in target or params.get("custom_llm_provider") or known_model((target,)).provider != "openai":
        return params
    work.change((*path, "model"), f"is OpenAI's; openai/{target} goes straight to it")
    return params | {"model": f"openai/{target}"}


def _not_taken_over(key: str, idle: tuple[str, ...]) -> str | None:
    return refusal(key) or (NO_COUNTERPART if not known_param(key) else IDLE if key in idle else None)


def _info(work: Import, path: KeyPath, held: object) -> Tree:
    kept: Tree = {}
    for key, value in held.items() if isinstance(held, dict) else ():
        if key in ModelInfo.model_fields:
            kept[key] = value
        else:
            work.drop((*path, key), IDLE if known_info(key) else NO_COUNTERPART)
    return kept


def _guarded(work: Import, path: KeyPath, value: Any, prefix: str) -> Any:
    """Return a value without the secrets in it."""
    if isinstance(value, dict):
        return {key: _guarded(work, (*path, key), inner, prefix) for key, inner in value.items()}
    key = str(path[-1])
    if isinstance(value, str) and SECRET.search(key) and key not in PUBLIC:
        # Below model_list, the entry's place and litellm_params.
        name = re.sub(r"\W", "_", "_".join(map(str, path[3:]))).upper()
        return _secret(work, path, value, f"{prefix}_{name}")
    return value


def _secret(work: Import, path: KeyPath, value: str, variable: str) -> str:
    if value.startswith((FROM_ENVIRONMENT, FROM_FILE)) or value.lower() in ("", "none"):
        return value
    while variable in work.variables:
        variable += "_2"
    work.variables.add(variable)
    work.change(path, f"stood in the file; put it into the environment variable {variable}")
    return FROM_ENVIRONMENT + variable
