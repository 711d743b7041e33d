"""Makes a validated Config of a file, a mapping or an address, or says at which line and key it cannot.

It serves nothing and compiles nothing.
"""

import os
from collections.abc import Mapping
from glob import has_magic
from pathlib import Path

from pydantic import ValidationError

from transom.policies.presets import PRESETS
from transom.proxy.config.consistency import foreign_params, inconsistencies
from transom.proxy.config.places import ConfigError, Document, Fault, KeyPath, Place, parse_yaml, plain, read_yaml
from transom.proxy.config.resolve import apply_overrides, keys_in_plain, resolve_secrets
from transom.proxy.config.schema import Config
from transom.proxy.config.sentences import explain, nearest

__all__ = ["ConfigError", "for_upstream", "from_mapping", "from_text", "included_files", "load"]

INCLUDABLE = ("model_list", "policies", "tenants")


def load(path: str | Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read config.yaml, the files it includes, the overrides and the secrets.

    Args:
        path: the file; messages call it as it is written here, included files likewise.
        environment: where `TRANSOM__…` and `os.environ/…` are looked up; the process's own by default.

    Raises ConfigError with one line for each fault.
    """
    path = Path(path)
    document = read_yaml(path, str(path))
    for included in included_files(path, document.tree.get("include")):
        _merge(document, read_yaml(included, str(included)))
    return _finish(document, os.environ if environment is None else environment, path.parent)


def from_text(text: str, source: str, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read a configuration from YAML text that includes nothing; raises ConfigError as `load` does."""
    return _finish(parse_yaml(text, source), os.environ if environment is None else environment, Path())


def from_mapping(
    mapping: Mapping[str, object], *, source: str = "configuration", environment: Mapping[str, str] | None = None
) -> Config:
    """Validate a configuration that stands in no file; raises ConfigError as `load` does, without lines."""
    return _finish(plain(mapping, source), os.environ if environment is None else environment, Path())


def for_upstream(url: str, preset: str = "chat", *, environment: Mapping[str, str] | None = None) -> Config:
    """Build the configuration of `serve --upstream URL`: any model name passes, and the client's own key goes up.

    Raises ConfigError for an address or a preset that cannot be used.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(Fault(Place("--upstream"), "", "must be an address that begins with http:// or https://"))
    if preset not in PRESETS:
        raise ConfigError(Fault(Place("--preset"), "", f"there are {', '.join(PRESETS)}{nearest(preset, PRESETS)}"))
    mapping: dict[str, object] = {
        "model_list": [{"model_name": "*", "litellm_params": {"model": "openai/*", "api_base": url}}],
        "policies": {"default": {"preset": preset}},
        "tenants": {"default": {"upstream_key": "client"}},
    }
    return from_mapping(mapping, source="--upstream", environment=environment)


def included_files(path: Path, patterns: object) -> list[Path]:
    """Return the files that a file's `include` names, each once, wildcards in alphabetical order.

    A wildcard may match none; a name without one is returned whether the file is there or not.
    """
    found: dict[Path, None] = {}
    for pattern in patterns if isinstance(patterns, list) else ():
        if not isinstance(pattern, str) or not pattern:
            continue
        matches = sorted(_glob(path.parent, pattern)) if has_magic(pattern) else [path.parent / pattern]
        found.update(dict.fromkeys(match for match in matches if match != path))
    return list(found)


def _glob(folder: Path, pattern: str) -> list[Path]:
    if Path(pattern).is_absolute():
        root = Path(Path(pattern).anchor)
        return list(root.glob(str(Path(pattern).relative_to(root))))
    return list(folder.glob(pattern))


def _merge(document: Document, included: Document) -> None:
    """Add an included file's models, policies and tenants; a name that is already there is a fault."""
    faults: list[Fault] = []
    for section, held in included.tree.items():
        path: KeyPath = (section,)
        if section not in INCLUDABLE:
            faults.append(included.fault(path, f"an included file may hold {', '.join(INCLUDABLE)} only"))
        elif section == "model_list" and isinstance(held, list):
            _append(document, included, held)
        elif section != "model_list" and isinstance(held, dict):
            faults.extend(_add(document, included, section, held))
        elif held is not None:
            kind = "a list of models" if section == "model_list" else "a mapping of names"
            faults.append(included.fault(path, f"must be {kind}"))
    if faults:
        raise ConfigError(*faults)


def _append(document: Document, included: Document, entries: list[object]) -> None:
    models = document.tree.get("model_list")
    if models is None:
        models = document.tree["model_list"] = []
    if not isinstance(models, list):
        return
    offset = len(models)
    models.extend(entries)
    for path, place in included.places.items():
        if len(path) > 1 and path[0] == "model_list" and isinstance(path[1], int):
            document.places["model_list", path[1] + offset, *path[2:]] = place


def _add(document: Document, included: Document, section: str, named: dict[str, object]) -> list[Fault]:
    held = document.tree.get(section)
    if held is None:
        held = document.tree[section] = {}
    if not isinstance(held, dict):
        return []
    faults = [
        included.fault((section, name), f"is written twice, first at {document.place((section, name))}")
        for name in named
        if name in held
    ]
    if not faults:
        held.update(named)
        document.places.update({path: place for path, place in included.places.items() if path[:1] == (section,)})
    return faults


def _finish(document: Document, environment: Mapping[str, str], folder: Path) -> Config:
    apply_overrides(document, environment)
    plain_keys = list(keys_in_plain(document))
    faults = resolve_secrets(document, environment, folder)
    unresolved = {fault.key for fault in faults}
    faults += foreign_params(document)
    _drop_empty_sections(document)
    try:
        config = Config.model_validate(document.tree)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            fault = document.fault(*explain(details, Config))
            if fault.key not in unresolved:
                faults.append(fault)
        raise ConfigError(*faults) from None
    faults += inconsistencies(config, document)
    if faults:
        raise ConfigError(*faults)
    return config.remarked(map(str, plain_keys))


def _drop_empty_sections(document: Document) -> None:
    """Let a section whose every key is commented out be absent: YAML reads it as null."""
    for section in [key for key, value in document.tree.items() if value is None and key in Config.model_fields]:
        del document.tree[section]
