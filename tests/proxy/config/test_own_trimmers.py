"""Trimmers of one's own: found, made, or refused with a reason and a place."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from transom.proxy.config.load import ConfigError, load
from transom.proxy.config.own_trimmers import load_trimmer, unusable
from transom.proxy.config.watch import LiveSettings

MODULE = """
class Keeps:
    async def trim(self, request): ...
class NeedsMore:
    def __init__(self, more): ...
class Idle: ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "own_for_tests.py").write_text(MODULE)
    (tmp_path / "own_with_fault.py").write_text("1 / 0\n")
    (tmp_path / "own_that_ends.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "own_without_library.py").write_text("import library_that_is_not_there\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def config(folder: Path, strategy: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(f"policies:\n  default:\n    max_tokens: 9\n    strategy: {strategy}\n")
    return path


@pytest.mark.usefixtures("folder")
def test_a_class_is_made() -> None:
    assert type(load_trimmer("own_for_tests:Keeps")).__name__ == "Keeps"
    assert unusable(("compress", "own_for_tests:Keeps")) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere_to_find:Keeps", "there is no module nowhere_to_find; it may lie beside the configuration"),
        ("own_for_tests.deeper:Keeps", "own_for_tests.deeper"),
        ("own_for_tests:Keep", "the module own_for_tests has no class Keep; did you mean Keeps?"),
        ("own_for_tests:NeedsMore", "own_for_tests:NeedsMore cannot be made: TypeError: "),
        ("own_for_tests:Idle", "own_for_tests:Idle has no method trim"),
        ("own_with_fault:Keeps", "the module own_with_fault cannot be imported: ZeroDivisionError: division by zero"),
        ("own_that_ends:Keeps", "the module own_that_ends cannot be imported: SystemExit: 3"),
        ("own_without_library:Keeps", "the module own_without_library cannot be imported: No module named 'library_"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_line(folder: Path, name: str, reason: str) -> None:
    path = config(folder, f"[compress, '{name}']")
    with pytest.raises(ConfigError) as caught:
        load(path, environment={})
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}:4: policies.default.strategy: ")
    assert reason in line


def test_a_reload_that_cannot_import_is_rejected(folder: Path) -> None:
    path = config(folder, "compress")
    live = LiveSettings(lambda: load(path, environment={}), path=path)
    before = live.current
    config(folder, "'own_for_tests:Nothing'")
    with capture_logs() as logs:
        assert not live.reload()
    assert live.current is before
    assert "own_for_tests has no class Nothing" in logs[0]["faults"][0]


def test_a_module_written_before_a_reload_is_found(folder: Path) -> None:
    path = config(folder, "compress")
    live = LiveSettings(lambda: load(path, environment={}), path=path)
    config(folder, "'own_written_late:Keeps'")
    assert not live.reload()
    (folder / "own_written_late.py").write_text(MODULE)
    assert live.reload()
    assert live.current.config.policies["default"].trimmers == ("own_written_late:Keeps",)
