"""Which configuration a command works on: the file named, ./config.yaml, or the embedded default."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from transom.proxy.config.load import from_text, load
from transom.proxy.config.schema import Config

DEFAULT_FILE = Path("config.yaml")


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration that can be read again: `path` is None where there is no file to watch."""

    name: str
    path: Path | None
    read: Callable[[], Config]


def find_source(path: Path | None) -> Source:
    """Return the file named, else ./config.yaml where there is one, else the embedded default."""
    if path is None and DEFAULT_FILE.is_file():
        path = DEFAULT_FILE
    if path is None:
        return Source("built-in default", None, lambda: from_text(default_text(), "built-in default"))
    return Source(str(path), path, lambda: load(path))


def let_import_beside(source: Source) -> None:
    """Make modules beside the configuration importable, or in the current directory where there is no file.

    The folder comes last on sys.path, so that no file in it can stand in for a library.
    """
    folder = str((source.path.parent if source.path is not None else Path()).absolute())
    if folder not in sys.path:
        sys.path.append(folder)


def default_text() -> str:
    """Return the text of the embedded default configuration."""
    return (files("transom.proxy.config") / "default.yaml").read_text("utf-8")
