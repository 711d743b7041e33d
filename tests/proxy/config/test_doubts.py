"""What is probably mistyped in where a model's requests go."""

from typing import Any

import pytest

from transom.proxy.config import doubts as module
from transom.proxy.config.doubts import doubts, unknown_provider
from transom.proxy.config.model_entry import LiteLLMParams


def doubted(model: str, **params: Any) -> list[str]:
    return list(doubts(LiteLLMParams(model=model, **params)))


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("openai/gpt-4o", {}),
        ("openai/anything", {"api_base": "http://llm.example:8080/v1"}),
        ("openai/anything", {"api_base": "http://llm.example/other/"}),
        ("transom/demo", {}),
        ("anthropic/claude-sonnet-4-5", {}),
        ("hosted_vllm/qwen", {"api_base": "http://llm.example"}),
        ("ollama_chat/llama3", {"api_base": "http://llm.example"}),
        ("bedrock/converse/anthropic.claude-3-5-sonnet-20240620-v1:0", {}),
        ("qwen", {"custom_llm_provider": "hosted_vllm"}),
        ("qwen", {"custom_llm_provider": "openai"}),
    ],
)
def test_what_may_well_be_right(model: str, params: dict[str, Any]) -> None:
    assert doubted(model, **params) == []
    assert unknown_provider(LiteLLMParams(model=model, **params)) is None


@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        ("gpt-4o-mini", {}, "gpt-4o-mini names no provider; did you mean openai/gpt-4o-mini?"),
        ("gpt4o-mini", {}, "gpt4o-mini names no provider; did you mean openai/gpt-4o-mini?"),
        ("zzz", {}, "zzz names no provider; write provider/model, as in openai/gpt-4o"),
        ("zzz", {"api_base": "http://x/v1"}, "zzz names no provider; did you mean openai/zzz?"),
        (
            "openai/q",
            {"api_base": "http://llm.example:8080/"},
            "api_base http://llm.example:8080 has no path, and most servers answer below /v1",
        ),
    ],
)
def test_what_is_probably_mistyped(model: str, params: dict[str, Any], said: str) -> None:
    assert doubted(model, **params) == [said]


@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        ("opeani/gpt-4o", {}, "opeani is no provider that litellm knows; did you mean openai/gpt-4o?"),
        (
            "Zzzz/Qwen3-8B",
            {"api_base": "http://x/v1"},
            "Zzzz is no provider that litellm knows; did you mean openai/Zzzz/Qwen3-8B?",
        ),
        (
            "zzzz/q",
            {},
            "zzzz is no provider that litellm knows; write provider/model, as in openai/gpt-4o",
        ),
        (
            "q",
            {"custom_llm_provider": "antropic"},
            "antropic is no provider that litellm knows; did you mean anthropic?",
        ),
    ],
)
def test_an_unknown_provider(model: str, params: dict[str, Any], said: str) -> None:
    assert unknown_provider(LiteLLMParams(model=model, **params)) == said


def test_nothing_is_doubted_where_litellm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known_providers", frozenset)
    assert doubted("gpt-4o") == []
    assert unknown_provider(LiteLLMParams(model="opeani/gpt-4o")) is None
