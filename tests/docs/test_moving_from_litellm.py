"""The way of docs/moving-from-litellm.md, step by step: its configuration, its commands, and what they print."""

import os
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.docs.page import Page
from tests.docs.running import BIN, ROOT, shell, transom
from transom.proxy.cli.app import app

PAGE = Page(ROOT / "docs" / "moving-from-litellm.md")


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, str]:
    """Import and check the page's configuration; return the folder, and what was printed."""
    (tmp_path / "litellm-config.yaml").write_text(PAGE.blocks("yaml")[0])
    lines = "exec 2>&1\n" + "".join(PAGE.blocks("sh")[:2])
    done = shell(lines, tmp_path, PATH=f"{BIN}:{os.environ['PATH']}", COLUMNS="140")
    assert done.returncode == 0, done.stdout
    return tmp_path, done.stdout


def test_every_step_prints_what_the_page_says(moved: tuple[Path, str]) -> None:
    folder, printed = moved
    _, keys, asking = PAGE.blocks("sh")
    variables = dict(re.findall(r"(\w+)=(\S+)", keys))
    with transom(folder, **variables) as proxy:
        done = shell(asking.replace("127.0.0.1:8000", proxy.address), folder, **variables)
    assert PAGE.prints(printed + done.stdout + "\n"), printed + done.stdout


def test_the_policy_that_only_watches_is_valid(moved: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = moved
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | yaml.safe_load(PAGE.blocks("yaml")[1])))
    for variable in re.findall(r"(\w+)=", PAGE.blocks("sh")[1]):
        monkeypatch.setenv(variable, "key")
    result = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "audit" in result.output
