"""The command line from outside: commands, options, exit codes, and what is imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import transom
from transom.proxy.cli.app import app

RUN = "from transom.proxy.cli import main; main()"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", RUN, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["serve", "--port", "x"], ["serve", "--port", "70000"], ["serve", "--workers", "0"],
                  ["check", "--nonsense"], ["keys", "old"]]
)  # fmt: skip
def test_what_is_not_understood_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in ("serve", "demo", "check", "keys", "config", "import", "db"):
        assert f"\n  {name} " in result.output


def test_no_help_is_cut_short() -> None:
    for command in ([], ["serve"], ["check"], ["keys"], ["config"], ["db"], ["import"], ["import", "litellm"]):
        output = CliRunner().invoke(app, [*command, "--help"], terminal_width=80).output
        assert "..." not in output.replace("[ARGS]...", ""), output
        assert re.search(r"--\w+ <", output) is None, output


def test_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"transom {transom.__version__}\n")


def test_options_of_serve() -> None:
    output = CliRunner().invoke(app, ["serve", "-h"]).output
    for option in ("--config", "--host", "--port", "--workers", "--upstream", "--preset"):
        assert option in output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["check"], 0, ""),
        (["check", "--config", "bad.yaml"], 1, "bad.yaml:2: server.prt: unknown key; did you mean port?\n"),
        (["serve", "--config", "none.yaml"], 1, "none.yaml: there is no such file\n"),
        (
            ["serve", "--preset", "chat"],
            2,
            (
                "Usage: transom serve [OPTIONS]\nTry 'transom serve -h' for help.\n\n"
                "Error: Invalid value for --preset: goes with --upstream; in a file, a policy names its preset\n"
            ),
        ),
    ],
)
def test_exit_codes_and_errors_of_the_process(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    (tmp_path / "bad.yaml").write_text("server:\n  prt: 1\n")
    ran = run(*arguments, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (code, said)


def test_a_reader_that_leaves_is_no_crash(tmp_path: Path) -> None:
    piped = f"{sys.executable} -c '{RUN}' config schema | head -n 1"
    ran = subprocess.run(piped, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("{\n", "")


def test_the_start_imports_nothing_heavy() -> None:
    code = (
        "import sys\nimport transom.proxy.cli.app, transom.proxy.config.load, transom.proxy.config.settings\n"
        "print([n for n in ('litellm', 'openai', 'rich', 'structlog', 'uvicorn') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_server_starts_without_what_only_paints_errors(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom transom.proxy.cli import app\n"
        "try: app.serve_command(upstream='http://127.0.0.1:9', preset='none', port=0)\n"
        "except Exception: pass\n"
        "unwanted = ('pygments', 'rich', 'greenlet', 'sqlalchemy.orm')\n"
        "print('structlog' in sys.modules, [n for n in unwanted if n in sys.modules])"
    )
    # What measures the coverage of child processes loads greenlet itself.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "True []\n"
