"""What docs/litellm.md shows is a valid configuration, and says what is so."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transom.proxy.cli.app import app
from transom.proxy.config.load import from_text
from transom.proxy.config.settings import compile_settings

PAGE = (Path(__file__).parents[2] / "docs" / "litellm.md").read_text("utf-8")
KEYS = ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_valid(example: str) -> None:
    settings = compile_settings(from_text(example, "litellm.md", environment=dict.fromkeys(KEYS, "key")))
    assert {name for name, model in settings.models.items() if model.provider == "direct"} == {"own-vllm"}
    assert all(model.max_input_tokens for name, model in settings.models.items() if name != "own-vllm")


def test_the_command_is_the_one_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "litellm-config.yaml").write_text(
        "model_list: [{model_name: m, litellm_params: {model: anthropic/x, api_key: os.environ/ANTHROPIC_API_KEY}}]\n"
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    commands = re.findall(r"^transom (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, result.output
