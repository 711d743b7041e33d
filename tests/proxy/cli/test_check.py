"""`transom check`: tables for people, JSON for scripts."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transom.proxy.cli.app import app

GOOD = """
model_list:
  - {model_name: local, litellm_params: {model: openai/q, api_base: "http://llm.example:8080/v1", api_key: none}}
  - {model_name: cheap, litellm_params: {model: openai/c, api_base: "http://sum.example/v1"},
     model_info: {max_input_tokens: 32768}}
policies:
  default: {max_tokens: 4000, max_context_items: 20, summary_model: cheap}
  agent: {preset: agent, enforce: audit}
tenants:
  acme:
    keys: [sha256:8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a]
    models: {local: default, cheap: agent}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_for_people(folder: Path) -> None:
    (folder / "config.yaml").write_text(GOOD)
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "config.yaml is valid" in lines[0]
    assert "acme local default compress, truncate 4,000 unknown 20 10 llm.example:8080; summaries: sum.example" in lines
    assert (
        "acme cheap agent clear_tool_results, compress, truncate (audit) 28,672 32,768 no limit no cap sum.example"
        in lines
    )
    assert any(line.startswith("warning: policy default: max_tool_calls_per_turn is not set") for line in lines)


def test_no_colours_where_there_is_no_terminal(folder: Path) -> None:
    assert "\x1b" not in CliRunner().invoke(app, ["check"]).output


def on_a_terminal(columns: int, cwd: Path) -> str:
    """Return what `transom check` shows on a terminal of so many columns, styles left out."""
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (40, columns))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    run = [sys.executable, "-c", "from transom.proxy.cli import main; main()", "check"]
    process = subprocess.Popen(
        run, cwd=cwd, stdin=inner, stdout=inner, stderr=inner, env={**environment, "TERM": "xterm"}
    )
    os.close(inner)
    shown = b""
    try:
        while more := os.read(outer, 65536):
            shown += more
    except OSError:  # Linux' end of a terminal that nobody holds any more
        pass
    os.close(outer)
    assert process.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")


def test_a_narrow_terminal_gets_a_block_for_each_route(folder: Path) -> None:
    (folder / "config.yaml").write_text(GOOD)
    shown = on_a_terminal(80, folder)
    assert shown.startswith("config.yaml is valid\n")
    first, second = [part.splitlines() for part in shown.split("\n\n")[1:3]]
    assert [line.split(":")[0] for line in first] == [
        "tenant", "model", "policy", "does", "messages", "window", "items", "tool calls", "text goes to"
    ]  # fmt: skip
    assert " ".join(second[3].split()) == "does: clear_tool_results, compress, truncate (audit)"
    assert " ".join(first[8].split()) == "text goes to: llm.example:8080; summaries: sum.example"
    assert "…" not in shown.split("messages: tokens")[0]


def test_a_wide_terminal_gets_the_table(folder: Path) -> None:
    (folder / "config.yaml").write_text(GOOD)
    lines = [" ".join(line.split()) for line in on_a_terminal(200, folder).splitlines()]
    assert "tenant model policy does messages window items tool calls text goes to" in lines


def test_names_are_shown_as_they_are_written(folder: Path) -> None:
    (folder / "config.yaml").write_text(GOOD.replace("acme", '"[red]:smile:"'))
    assert "[red]:smile:" in CliRunner().invoke(app, ["check"]).output


def test_the_file_may_be_an_argument(folder: Path) -> None:
    (folder / "own.yaml").write_text(GOOD)
    result = CliRunner().invoke(app, ["check", "own.yaml"])
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "own.yaml is valid")
    assert CliRunner().invoke(app, ["check", "own.yaml", "-c", "own.yaml"]).exit_code == 2


def test_for_scripts(folder: Path) -> None:
    (folder / "config.yaml").write_text(GOOD)
    result = CliRunner().invoke(app, ["check", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert (found["valid"], found["config"]) == (True, "config.yaml")
    assert [(route["model"], route["message_tokens"]) for route in found["routes"]] == [
        ("local", 4000),
        ("cheap", 28672),
    ]
    assert found["routes"][0]["summaries_go_to"] == "sum.example"
    assert len(found["warnings"]) == 1


def test_the_default_where_there_is_no_file(folder: Path) -> None:
    found = json.loads(CliRunner().invoke(app, ["check", "--json"]).output)
    assert found["config"] == "built-in default"
    assert [route["requests_go_to"] for route in found["routes"]] == ["this process"]
    assert found["warnings"] == []


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_an_invalid_file(folder: Path, option: list[str]) -> None:
    (folder / "bad.yaml").write_text("server:\n  prt: 1\nmodels: []\n")
    result = CliRunner().invoke(app, ["check", "-c", "bad.yaml", *option])
    assert result.exit_code == 1
    errors = ["bad.yaml:2: server.prt: unknown key; did you mean port?",
              "bad.yaml:3: models: unknown key; did you mean model_list?"]  # fmt: skip
    if option:
        assert json.loads(result.stdout) == {"valid": False, "config": "bad.yaml", "errors": errors}
    else:
        assert result.stderr.splitlines() == errors


def test_a_secret_never_shows(folder: Path) -> None:
    (folder / "config.yaml").write_text(
        GOOD.replace("api_key: none", "api_key: sk-hidden").replace("[k]", "[tsm-hidden]")
    )
    for option in ([], ["--json"]):
        assert "hidden" not in CliRunner().invoke(app, ["check", *option]).output


def test_modules_beside_the_configuration_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "deep").mkdir()
    (folder / "deep" / "beside_for_check.py").write_text("class Own:\n    async def trim(self, request): ...\n")
    (folder / "deep" / "own.yaml").write_text("policies: {default: {strategy: 'beside_for_check:Own'}}")
    result = CliRunner().invoke(app, ["check", "-c", "deep/own.yaml"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert str(folder / "deep") == sys.path[-1]


def test_a_trimmer_that_is_not_there_is_refused(folder: Path) -> None:
    (folder / "config.yaml").write_text("policies:\n  default:\n    strategy: 'not_there_at_all:Own'\n")
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 1
    assert result.stderr.startswith("config.yaml:3: policies.default.strategy: there is no module not_there_at_all;")
