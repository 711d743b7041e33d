"""YAML read into a plain tree that remembers the file and line of every key; it knows nothing of what the keys mean."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from transom.proxy.config.yaml_sentences import explain_yaml

KeyPath: TypeAlias = tuple[str | int, ...]
Tree: TypeAlias = dict[str, Any]

# The C parser is some ten times as fast and not in every build of PyYAML.
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: a file and a line (from 1), or something that has no lines."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, at which key (may be empty), and the sentence that says what."""

    place: Place
    key: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.sentence}" if self.key else f"{self.place}: {self.sentence}"


class ConfigError(Exception):
    """A configuration that cannot be used: each line of its text is one fault, in the order of the files' lines."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = tuple(dict.fromkeys(sorted(faults, key=lambda f: (f.place.source, f.place.line or 0))))
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(slots=True)
class Document:
    """A tree and the place of every key path in it."""

    source: str
    tree: Tree = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)

    def place(self, path: KeyPath) -> Place:
        """Return where a key stands, or where the nearest part around it does."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path[:-1]
        return self.places.get((), Place(self.source))

    def fault(self, path: KeyPath, sentence: str) -> Fault:
        """Return what is wrong at a key path, with its place."""
        return Fault(self.place(path), key_path(path), sentence)


def key_path(path: KeyPath) -> str:
    """Write a path the way people do: `model_list[0].litellm_params.model`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


YAML_TAG = "tag:yaml.org,2002:"
INTEGER = f"{YAML_TAG}int"
SCALARS = frozenset(f"{YAML_TAG}{name}" for name in ("str", "int", "float", "bool", "null"))


class _Loader(_Base):  # type: ignore[valid-type,misc]
    """Safe YAML with YAML 1.2's scalars.

    Only true and false are booleans, so that `on`, `off` and `no` stay words, and 010 is ten. What is tagged as a
    number and is none stays text, which its key's own rule then refuses.
    """

    def construct_scalar_or_text(self, node: yaml.ScalarNode) -> object:
        try:
            if node.tag == INTEGER:
                return int(node.value)
            return self.construct_object(node)
        except (ValueError, KeyError):
            return str(node.value)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"{YAML_TAG}{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def parse_scalar(text: str) -> object:
    """Read a text as one YAML scalar: a number, a boolean, null or the text itself."""
    loader = _Loader("")
    try:
        node = yaml.ScalarNode(loader.resolve(yaml.ScalarNode, text, (True, False)), text)
        return loader.construct_scalar_or_text(node)
    finally:
        loader.dispose()


def read_yaml(path: Path, source: str) -> Document:
    """Read one YAML file.

    Args:
        path: the file.
        source: how messages call it.

    Raises ConfigError where the file cannot be read, is no YAML, holds a key twice or is no mapping.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise _unusable(source, None, "there is no such file") from None
    except OSError as error:
        raise _unusable(source, None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise _unusable(source, line, "is not UTF-8 text") from None
    return parse_yaml(text, source)


def parse_yaml(text: str, source: str) -> Document:
    """Parse one YAML text; raises ConfigError as `read_yaml` does."""
    document = Document(source)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return document
        document.places[()] = Place(source)
        tree = _Builder(loader, document).build(node, ())
    except yaml.MarkedYAMLError as error:
        line, sentence = explain_yaml(error, text)
        raise _unusable(source, line, f"is not valid YAML: {sentence}") from None
    except yaml.YAMLError:
        raise _unusable(source, None, "holds a character that YAML does not allow") from None
    except RecursionError:
        raise _unusable(source, None, "is nested too deeply") from None
    finally:
        loader.dispose()
    if not isinstance(tree, dict):
        raise _unusable(source, node.start_mark.line + 1, "must be a mapping of keys, such as model_list:")
    document.tree = tree
    return document


def _unusable(source: str, line: int | None, sentence: str) -> ConfigError:
    return ConfigError(Fault(Place(source, line), "", sentence))


@dataclass(slots=True)
class _Builder:
    """Turns composed nodes into a tree and notes the line of every key on the way."""

    loader: Any
    document: Document

    def build(self, node: yaml.Node, path: KeyPath) -> object:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{YAML_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{YAML_TAG}seq":
            return [self._child(value, (*path, index), value) for index, value in enumerate(node.value)]
        if isinstance(node, yaml.CollectionNode):
            raise _unusable(self.document.source, node.start_mark.line + 1, "a list or a mapping may have no tag")
        if node.tag not in SCALARS:
            sentence = "a text that begins with ! is read as a tag; put it in quotes"
            raise _unusable(self.document.source, node.start_mark.line + 1, sentence)
        return self.loader.construct_scalar_or_text(node)

    def _child(self, node: yaml.Node, path: KeyPath, at: yaml.Node) -> object:
        self.document.places[path] = Place(self.document.source, at.start_mark.line + 1)
        return self.build(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> Tree:
        self._refuse_doubled(node, path)
        # Spells `<<: *anchor` out, the keys written beside it last.
        self.loader.flatten_mapping(node)
        tree: Tree = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            tree[key] = self._child(value_node, (*path, key), key_node)
        return tree

    def _refuse_doubled(self, node: yaml.MappingNode, path: KeyPath) -> None:
        seen: dict[str, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node)
            if key in seen and key_node.tag != f"{YAML_TAG}merge":
                place = Place(self.document.source, line)
                raise ConfigError(Fault(place, key_path((*path, key)), f"is written twice, first in line {seen[key]}"))
            seen[key] = line

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            sentence = "a key must be a word, not a list or a mapping"
            raise _unusable(self.document.source, node.start_mark.line + 1, sentence)
        return str(node.value)


def plain(mapping: Mapping[str, object], source: str) -> Document:
    """Wrap a mapping that was written in no file."""
    return Document(source, _copy(mapping))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value
