import sys
from importlib import import_module
from pathlib import Path

import pytest

from transom.storage.left_out import left_out

NAME = "a_package_of_this_test"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{NAME}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)


def test_a_package_is_not_found_inside_and_found_again_afterwards() -> None:
    with left_out(NAME), pytest.raises(ImportError):
        import_module(NAME)
    assert import_module(NAME).__name__ == NAME


def test_also_after_an_error() -> None:
    with pytest.raises(RuntimeError), left_out(NAME):
        raise RuntimeError
    import_module(NAME)


def test_one_that_is_loaded_already_stays() -> None:
    loaded = import_module(NAME)
    with left_out(NAME):
        assert import_module(NAME) is loaded
    assert sys.modules[NAME] is loaded
