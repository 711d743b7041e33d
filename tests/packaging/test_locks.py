import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ["requirements.lock", "requirements-dev.lock", "requirements-build.lock"]
PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)(?:\[[a-z,]+\])?==(\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """Return the versions of a lock file by name; of a name with several markers the last."""
    return dict(PIN.findall((ROOT / lock).read_text("utf-8")))


def names(requirements: list[str]) -> set[str]:
    """Return the normalised names of requirements such as `psycopg[binary]>=3`."""
    return {re.split(r"[\[>=<~! ]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash_and_nothing_names_an_address(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all("==" in entry.splitlines()[0] and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_the_locks_cover_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert names(project["project"]["dependencies"]) <= pins("requirements.lock").keys()
    assert names(project["project"]["optional-dependencies"]["dev"]) <= pins("requirements-dev.lock").keys()
    assert names(project["build-system"]["requires"]) <= pins("requirements-build.lock").keys()


def test_developers_run_the_versions_that_users_get() -> None:
    developers = pins("requirements-dev.lock")
    for lock in LOCKS:
        assert {name: developers.get(name, version) for name, version in pins(lock).items()} == pins(lock)
