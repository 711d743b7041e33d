"""A LiteLLM proxy's configuration, made into one of ours."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from transom.proxy.cli.app import app
from transom.proxy.config.load import from_text
from transom.proxy.config.settings import compile_settings

LITELLM = """\
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/my-deployment
      api_base: https://x.openai.azure.com/
      api_version: "2025-01-01"
      api_key: sk-literal-0123456789
      rpm: 6
      extra_headers: {api-key: secret-header-value, x-team: a}
    model_info: {mode: chat, base_model: azure/gpt-4o, max_input_tokens: 100000}
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY}
  - model_name: claude
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY, temperature: 0.5}
  - model_name: rock
    litellm_params:
      model: bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0
      aws_access_key_id: AKIAEXAMPLE
      aws_secret_access_key: aws-literal-0123456789
      aws_region_name: us-east-1
      guardrails: [pii]
  - model_name: anthropic/*
    litellm_params: {model: anthropic/*}
  - model_name: "*"
    litellm_params: {model: "openai/*", api_key: none}
  - oddity
litellm_settings:
  drop_params: true
  success_callback: [langfuse]
  cache: true
general_settings:
  master_key: sk-master-0123456789
  database_url: postgresql://user:password@host/db
router_settings: {routing_strategy: least-busy}
environment_variables: {OPENAI_API_KEY: sk-in-the-file}
something_else: 1
"""
ENVIRONMENT = dict.fromkeys(
    [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GPT_4O_API_KEY",
        "GPT_4O_EXTRA_HEADERS_API_KEY",
        "ROCK_AWS_SECRET_ACCESS_KEY",
        "TRANSOM_MAIN_KEY",
    ],
    "from-the-environment",
)
SECRETS = ["sk-literal", "secret-header", "aws-literal", "sk-master", "password", "sk-in-the-file"]


def imported(tmp_path: Path, text: str, *more: str) -> Result:
    source = tmp_path / "litellm.yaml"
    source.write_text(text)
    return CliRunner().invoke(app, ["import", "litellm", str(source), *more])


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return imported(tmp_path, LITELLM)


@pytest.fixture
def made(result: Result) -> dict[str, Any]:
    return dict(yaml.safe_load(result.stdout))


def test_what_is_written_is_a_configuration(result: Result) -> None:
    assert result.exit_code == 0
    settings = compile_settings(from_text(result.stdout, "made", environment=ENVIRONMENT))
    assert set(settings.models) == {"gpt-4o", "claude", "rock", "*"}
    assert settings.models["gpt-4o"].params["base_model"] == "azure/gpt-4o"
    assert settings.models["gpt-4o"].max_input_tokens == 100_000
    assert settings.tenant_for_key("from-the-environment") is settings.tenants["main"]


def test_models_keep_what_is_honoured(made: dict[str, Any]) -> None:
    by_name = {entry["model_name"]: entry for entry in made["model_list"]}
    assert by_name["gpt-4o"] == {
        "model_name": "gpt-4o",
        "litellm_params": {
            "model": "azure/my-deployment",
            "api_base": "https://x.openai.azure.com/",
            "api_version": "2025-01-01",
            "api_key": "os.environ/GPT_4O_API_KEY",
            "extra_headers": {"api-key": "os.environ/GPT_4O_EXTRA_HEADERS_API_KEY", "x-team": "a"},
            "drop_params": True,
        },
        "model_info": {"base_model": "azure/gpt-4o", "max_input_tokens": 100000},
    }
    assert by_name["rock"]["litellm_params"]["aws_access_key_id"] == "AKIAEXAMPLE"
    assert "drop_params" not in by_name["*"]["litellm_params"]
    assert by_name["*"]["litellm_params"]["api_key"] == "none"


def test_what_is_left_out_is_named_with_its_line_and_reason(result: Result, tmp_path: Path) -> None:
    lines = result.stderr.replace(f"{tmp_path}/", "").splitlines()
    said = {line.split(": ", 3)[2]: line for line in lines}
    assert set(said) == {
        "model_list[0].litellm_params.rpm",
        "model_list[0].litellm_params.api_key",
        "model_list[0].litellm_params.extra_headers.api-key",
        "model_list[0].model_info.mode",
        "model_list[1]",
        "model_list[2].litellm_params.temperature",
        "model_list[3].litellm_params.aws_secret_access_key",
        "model_list[3].litellm_params.guardrails",
        "model_list[4]",
        "model_list[6]",
        "litellm_settings.success_callback",
        "litellm_settings.cache",
        "general_settings.master_key",
        "general_settings.database_url",
        "router_settings",
        "environment_variables",
        "something_else",
    }
    assert said["router_settings"] == (
        "left out: litellm.yaml:34: router_settings: Transom is no router; put one in front of or behind it"
    )
    assert said["model_list[0].litellm_params.api_key"] == (
        "changed: litellm.yaml:7: model_list[0].litellm_params.api_key: "
        "stood in the file; put it into the environment variable GPT_4O_API_KEY"
    )


def test_keys_are_never_printed(result: Result) -> None:
    for secret in SECRETS:
        assert secret not in result.output


def test_it_can_be_written_to_a_file(tmp_path: Path) -> None:
    output = tmp_path / "made.yaml"
    result = imported(tmp_path, LITELLM, "--output", str(output))
    assert (result.exit_code, result.stdout) == (0, "")
    assert yaml.safe_load(output.read_text())["model_list"]


@pytest.mark.parametrize("text", ["router_settings: {}\n", "model_list: []\n", "model_list:\n  - model_name: x\n"])
def test_a_file_without_a_model_is_no_success(tmp_path: Path, text: str) -> None:
    result = imported(tmp_path, text)
    assert result.exit_code == 1
    assert "holds no model that can be taken over" in result.stderr
    assert result.stdout == ""


def test_every_key_has_a_variable_of_its_own(tmp_path: Path) -> None:
    entries = [
        {"model_name": name, "litellm_params": {"model": "groq/x", "api_key": f"literal-{name}"}}
        for name in ("a.b", "a-b")
    ]
    made = yaml.safe_load(imported(tmp_path, yaml.safe_dump({"model_list": entries})).stdout)
    keys = [entry["litellm_params"]["api_key"] for entry in made["model_list"]]
    assert keys == ["os.environ/A_B_API_KEY", "os.environ/A_B_API_KEY_2"]


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    output = tmp_path / "own.yaml"
    output.write_text("mine")
    refused = imported(tmp_path, LITELLM, "--output", str(output))
    assert (refused.exit_code, refused.stderr) == (1, f"{output}: is there already; --force overwrites it\n")
    assert output.read_text() == "mine"
    assert imported(tmp_path, LITELLM, "--output", str(output), "--force").exit_code == 0
    assert "model_list:" in output.read_text()


def test_openais_models_go_straight_to_openai(tmp_path: Path) -> None:
    source = tmp_path / "litellm.yaml"
    source.write_text(
        "general_settings: {cache: true}\n"
        "model_list:\n"
        "- model_name: mini\n"
        "  litellm_params: {model: gpt-4o-mini, api_key: none}\n"
        "- model_name: mine\n"
        "  litellm_params: {model: gpt-4o-mini, custom_llm_provider: azure}\n"
        "- model_name: other\n"
        "  litellm_params: {model: claude-sonnet-4-5}\n"
    )
    result = CliRunner().invoke(app, ["import", "litellm", str(source)])
    assert result.exit_code == 0
    models = [entry["litellm_params"]["model"] for entry in yaml.safe_load(result.stdout)["model_list"]]
    assert models == ["openai/gpt-4o-mini", "gpt-4o-mini", "claude-sonnet-4-5"]
    first, second = result.stderr.splitlines()
    assert first.startswith(f"left out: {source}:1: general_settings.cache: ")
    assert second == (
        f"changed: {source}:4: model_list[0].litellm_params.model: is OpenAI's; openai/gpt-4o-mini goes straight to it"
    )
