"""Entries of model_list as people paste them from LiteLLM."""

from typing import Any

import pytest

from transom.proxy.config.load import ConfigError, from_mapping
from transom.proxy.config.model_entry import LiteLLMParams


def entry(name: str = "m", info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": "openai/m", **params}, "model_info": info or {}}


def refused(mapping: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"model_list": [mapping]}, environment={})
    return [fault.sentence for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("model", "custom", "provider", "vendor"),
    [
        ("openai/gpt-4o", None, "direct", "openai"),
        ("gpt-4o", "openai", "direct", "openai"),
        ("transom/demo", None, "demo", "transom"),
        ("anthropic/claude-sonnet-4-5", None, "litellm", "anthropic"),
        ("azure/my-deployment", None, "litellm", "azure"),
        ("gpt-4o", None, "litellm", None),
        ("openai/gpt-oss", "hosted_vllm", "litellm", "hosted_vllm"),
        ("text-completion-openai/x", None, "litellm", "text-completion-openai"),
    ],
)
def test_providers(model: str, custom: str | None, provider: str, vendor: str | None) -> None:
    params = LiteLLMParams.model_validate({"model": model, "custom_llm_provider": custom})
    assert (params.provider, params.provider_name) == (provider, vendor)


def test_an_entry_pasted_from_litellm() -> None:
    mapping = {
        "model_name": "azure-gpt",
        "litellm_params": {
            "model": "azure/gpt-4o",
            "api_base": "https://x.openai.azure.com/",
            "api_version": "2025-01-01",
            "azure_ad_token": "t",
            "api_key": "k",
            "rpm": 6,
            "tpm": 1000,
            "timeout": 30,
            "weight": 2,
            "input_cost_per_token": 1e-6,
            "drop_params": True,
        },
        "model_info": {
            "mode": "chat",
            "base_model": "azure/gpt-4o",
            "supports_vision": True,
            "id": "1",
            "tier": "paid",
        },
    }
    params = from_mapping({"model_list": [mapping]}, environment={}).model_list[0].litellm_params
    assert params.address == "https://x.openai.azure.com"
    assert params.provider_params == {"api_version": "2025-01-01", "azure_ad_token": "t", "drop_params": True}
    assert params.idle_params == ("rpm", "tpm", "timeout", "weight", "input_cost_per_token")


def test_provider_parameters_have_no_effect_on_a_direct_model() -> None:
    params = LiteLLMParams.model_validate({"model": "openai/m", "api_version": "1", "rpm": 5})
    assert params.idle_params == ("api_version", "rpm")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("temperature", 1, "would be added to every request, and Transom adds no field to a request"),
        ("extra_body", {}, "would be added to every request, and Transom adds no field to a request"),
        ("max_tokens", 5, "would be added to every request, and Transom adds no field to a request"),
        ("mock_response", "hi", "would answer without a model; use the model transom/demo for that"),
        ("litellm_credential_name", "c", "names a credential of LiteLLM's own database; write api_key here"),
        ("max_budget", 5, "is a spending limit that is not kept here"),
        ("configurable_clientside_auth_params", ["api_base"], "would let a client choose where its text and the key"),
        ("auto_router_config", "x", "would route to another model; Transom is no router"),
        ("fallbacks", [], "would route to another model; Transom is no router"),
        ("switchyard_router_config", {}, "would route to another model; Transom is no router"),
        ("silent_model", "x", "would send every request to a second model"),
        ("guardrails", ["pii"], "would not be run here; remove it"),
        ("prompt_id", "p", "would take its prompt from a store of LiteLLM's"),
        ("headers", {}, "is another name of extra_headers; write that"),
        ("extra_headers", {"Host": "other"}, "must be headers that can be sent, and none that frames the request"),
        ("extra_headers", {"x team": "a"}, "must be headers that can be sent"),
        ("extra_headers", {"x-team": "a\r\nx: y"}, "must be headers that can be sent"),
        ("enable_prompt_caching", True, "would be added to every request"),
        ("apikey", "x", "unknown key; did you mean api_key?"),
        ("api_base", "localhost:80", "must be an address that begins with http:// or https://"),
        ("model", "openai/*", 'has a * in litellm_params.model, which only model_name "*" may have'),
    ],
)
def test_refused_parameters(key: str, value: Any, said: str) -> None:
    (sentence,) = refused(entry(**{key: value}))
    assert sentence.startswith(said)


def test_two_addresses() -> None:
    assert refused(entry(api_base="http://a", base_url="http://b")) == [
        "api_base and base_url differ; write only one of them"
    ]


@pytest.mark.parametrize("name", ["openai/*", "*x", ""])
def test_names_that_cannot_be_asked_for(name: str) -> None:
    assert len(refused(entry(name))) == 1


@pytest.mark.parametrize("target", ["openai/*x", "*/*", "*"])
def test_wildcards_that_cannot_be_filled(target: str) -> None:
    assert len(refused(entry("*", model=target))) == 1


def test_a_misspelt_key_of_model_info_is_told() -> None:
    assert refused(entry(info={"max_input_token": 5})) == ["unknown key; did you mean max_input_tokens?"]


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Api-Key"])
def test_headers_that_never_go_up(name: str) -> None:
    assert refused(entry(info={"forward_headers": ["x-ok", name]})) == [
        f"holds {name.lower()}, which is never sent upstream"
    ]


@pytest.mark.parametrize(("written", "key"), [("none", None), ("None", None), ("sk-1", "sk-1")])
def test_the_key_none_is_no_key(written: str, key: str | None) -> None:
    assert LiteLLMParams.model_validate({"model": "openai/m", "api_key": written}).api_key == key


PASTED = [
    {
        "model": "bedrock/anthropic.claude-3-5-sonnet-20240620-v1:0",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region_name": "us-east-1",
        "aws_role_name": "arn:aws:iam::1:role/x",
        "aws_session_name": "s",
        "aws_bedrock_runtime_endpoint": "https://vpce.example",
    },
    {"model": "vertex_ai/gemini-2.5-pro", "vertex_project": "p", "vertex_location": "eu", "vertex_credentials": "{}"},
    {
        "model": "azure/x",
        "azure_ad_token": "t",
        "tenant_id": "t",
        "client_id": "c",
        "client_secret": "s",
        "base_model": "m",
    },
    {"model": "watsonx/x", "watsonx_project_id": "p", "space_id": "s", "token": "t"},
    {"model": "oci/x", "oci_region": "r", "oci_user": "u"},
    {"model": "hosted_vllm/x", "supports_system_message": False, "allowed_openai_params": ["top_logprobs"]},
]


@pytest.mark.parametrize("params", PASTED)
def test_what_providers_need_reaches_litellm(params: dict[str, Any]) -> None:
    found = from_mapping({"model_list": [entry(**params)]}, environment={}).model_list[0].litellm_params
    assert found.provider_params == {name: value for name, value in params.items() if name != "model"}
    assert found.idle_params == ()


def test_what_only_litellms_proxy_does_has_no_effect() -> None:
    idle = {"langfuse_host": "x", "s3_bucket_name": "b", "cache_read_input_token_cost": 1e-7, "tiered_pricing": []}
    found = from_mapping({"model_list": [entry(model="groq/x", **idle)]}, environment={}).model_list[0].litellm_params
    assert set(found.idle_params) == set(idle)
    assert found.provider_params == {}


@pytest.mark.parametrize(
    "name",
    ["api_base", "base_url", "aws_region_name", "mock_response", "extra_body", "client", "timeout", "drop_params"],
)
def test_a_field_that_steers_cannot_be_let_in(name: str) -> None:
    assert refused(entry(info={"passthrough_fields": ["top_k", name]})) == [
        f"holds {name}, which would let a client steer the proxy"
    ]


def test_fields_of_the_provider_can_be_let_in() -> None:
    mapping = entry(info={"passthrough_fields": ["top_k", "thinking", "safety_settings"]})
    info = from_mapping({"model_list": [mapping]}, environment={}).model_list[0].model_info
    assert info.passthrough_fields == ("top_k", "thinking", "safety_settings")
