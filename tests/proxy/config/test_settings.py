"""Compiled settings: keys, routes, models, tenants."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.config.load import for_upstream, from_mapping
from transom.proxy.config.schema import hash_key
from transom.proxy.config.settings import OPENAI_BASE, Model, Settings, Tenant, compile_settings
from transom.proxy.errors import ModelNotAllowed, ModelNotFound


def settings(**mapping: Any) -> Settings:
    return compile_settings(from_mapping(mapping, environment={}))


def entry(name: str, model: str, info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": model, **params}, "model_info": info or {}}


def only_model(name: str, model: str, info: dict[str, Any] | None = None, **params: Any) -> Model:
    return settings(model_list=[entry(name, model, info, **params)]).models[name]


def tenant(found: Settings, name: str = "default") -> Tenant:
    return found.tenants[name]


def test_a_direct_model() -> None:
    model = only_model(
        "local",
        "openai/org/qwen3",
        {
            "max_input_tokens": 32768,
            "forward_headers": ["X-Team"],
            "passthrough_fields": ["top_k"],
            "output_limit_param": "max_tokens",
            "usage_in_stream": False,
        },
        api_base="http://127.0.0.1:8080/v1/",
        api_key="none",
        organization="org-1",
        extra_headers={"X-Gateway": "g"},
        api_version="unused",
    )
    assert model == Model(
        name="local",
        provider="direct",
        upstream_model="org/qwen3",
        api_base="http://127.0.0.1:8080/v1",
        api_key=None,
        max_input_tokens=32768,
        forward_headers=("x-team",),
        passthrough_fields=("top_k",),
        output_limit_param="max_tokens",
        usage_in_stream=False,
        label="local",
        extra_headers={"x-gateway": "g", "openai-organization": "org-1"},
        params={},
    )


def test_openai_itself_and_the_model_map() -> None:
    model = only_model("fast", "openai/gpt-4o-mini", api_key="sk-x")
    assert (model.api_base, model.max_input_tokens, model.max_output_tokens) == (OPENAI_BASE, 128_000, 16_384)
    assert not model.reasons
    assert model.usage_in_stream


def test_the_entry_overrides_the_model_map() -> None:
    info = {"max_input_tokens": 100, "supports_reasoning": False, "base_model": "o3"}
    model = only_model("m", "openai/o3", info)
    assert (model.max_input_tokens, model.reasons) == (100, False)


def test_base_model_names_the_entry_of_the_map() -> None:
    model = only_model("m", "azure/my-deployment", {"base_model": "azure/gpt-4o"}, api_base="https://x")
    assert model.max_input_tokens == 128_000


@pytest.mark.parametrize(
    ("model", "params", "upstream"),
    [
        ("anthropic/claude-sonnet-4-5", {}, "anthropic/claude-sonnet-4-5"),
        ("claude-sonnet-4-5", {"custom_llm_provider": "anthropic"}, "anthropic/claude-sonnet-4-5"),
        ("anthropic/x", {"custom_llm_provider": "anthropic"}, "anthropic/x"),
        ("gpt-4o", {"custom_llm_provider": "openai"}, "gpt-4o"),
        ("transom/demo", {}, "demo"),
        ("some-name", {}, "some-name"),
    ],
)
def test_names_sent_upstream(model: str, params: dict[str, Any], upstream: str) -> None:
    assert only_model("m", model, **params).upstream_model == upstream


def test_a_litellm_model_keeps_its_provider_parameters() -> None:
    model = only_model("m", "vertex_ai/gemini", vertex_project="p", organization="o", rpm=5)
    assert dict(model.params) == {"vertex_project": "p", "organization": "o"}
    assert model.api_base is None
    assert settings(model_list=[entry("m", "vertex_ai/gemini")]).uses_litellm
    assert not settings(model_list=[entry("m", "openai/x"), entry("d", "transom/demo")]).uses_litellm


def test_the_demo_has_a_window_of_its_own() -> None:
    assert only_model("demo", "transom/demo").max_input_tokens == 8192
    assert only_model("demo", "transom/demo", {"max_input_tokens": 500}).max_input_tokens == 500


def test_no_secret_in_the_text_of_a_model() -> None:
    model = only_model(
        "m", "bedrock/x", api_key="hush", aws_secret_access_key="hush-2", extra_headers={"x-k": "hush-3"}
    )
    assert "hush" not in repr(model)
    assert set(model.secrets) == {"hush", "hush-2", "hush-3"}


@pytest.mark.parametrize(
    ("model", "params", "said"),
    [
        ("openai/x", {"api_base": "http://10.0.0.1:8080/v1"}, "10.0.0.1:8080"),
        ("openai/x", {}, "api.openai.com"),
        ("anthropic/x", {}, "anthropic (through litellm)"),
        ("azure/x", {"api_base": "https://me.azure.com/secret-path"}, "me.azure.com"),
        ("transom/demo", {}, "this process"),
    ],
)
def test_where_text_is_sent(model: str, params: dict[str, Any], said: str) -> None:
    assert only_model("m", model, **params).destination == said


def test_any_name_passes_through_the_star() -> None:
    found = settings(model_list=[entry("mine", "openai/x"), entry("*", "openai/*", api_base="http://h/v1")])
    route = tenant(found).route("gpt-4o")
    assert (route.model.name, route.model.upstream_model, route.model.label) == ("gpt-4o", "gpt-4o", "other")
    assert route.model.max_input_tokens == 128_000
    assert tenant(found).route("never-heard-of").model.max_input_tokens is None
    assert tenant(found).route("mine").model.label == "mine"
    assert list(tenant(found).model_names()) == ["mine"]
    with pytest.raises(ModelNotFound):
        tenant(found).route("*")


@pytest.mark.parametrize(
    ("target", "upstream"),
    [("openai/*", "abc"), ("anthropic/*", "anthropic/abc"), ("openai/fixed", "fixed")],
)
def test_what_the_star_sends(target: str, upstream: str) -> None:
    found = settings(model_list=[entry("*", target)])
    assert found.model(tenant(found), "abc").upstream_model == upstream


@given(st.text(min_size=1).filter(lambda name: name != "*"))
def test_every_name_a_client_may_invent_is_labelled_other(name: str) -> None:
    found = compile_settings(for_upstream("http://localhost/v1", environment={}))
    assert found.anonymous is not None
    model = found.anonymous.route(name).model
    assert (model.upstream_model, model.label) == (name, "other")


def test_routes_and_policies() -> None:
    found = settings(
        model_list=[entry("a", "openai/a"), entry("b", "openai/b"), entry("c", "openai/c")],
        policies={"default": {"preset": "chat"}, "tools": {"preset": "agent"}},
        tenants={
            "all": {"keys": ["1"]},
            "some": {"keys": ["2"], "policy": "tools", "models": {"a": "default"}},
            "rest": {"keys": ["3"], "models": {"a": "tools", "*": "default"}},
        },
    )
    assert tenant(found, "all").route("c").policy_name == "default"
    assert tenant(found, "some").route("a").policy_name == "default"
    assert tenant(found, "some").policy.preset == "agent"
    assert (tenant(found, "rest").route("a").policy_name, tenant(found, "rest").route("b").policy_name) == (
        "tools",
        "default",
    )
    assert list(tenant(found, "some").model_names()) == ["a"]
    with pytest.raises(ModelNotAllowed):
        tenant(found, "some").route("b")
    for name in found.tenants:
        with pytest.raises(ModelNotFound):
            tenant(found, name).route("nope")


def test_the_only_policy_is_the_default() -> None:
    assert tenant(settings(policies={"p": {"preset": "voice"}})).policy_name == "p"


def test_the_model_that_writes_summaries() -> None:
    found = settings(
        model_list=[entry("a", "openai/a"), entry("s", "openai/s")],
        policies={"default": {}, "other": {"summary_model": "s"}},
        tenants={"t": {"models": {"a": "other", "s": "default"}}, "u": {"models": {"a": "other"}}},
    )
    assert tenant(found, "t").summary_route(tenant(found, "t").route("a")).name == "s"
    assert tenant(found, "t").summary_route(tenant(found, "t").route("s")).name == "s"
    with pytest.raises(ModelNotAllowed):
        tenant(found, "u").summary_route(tenant(found, "u").route("a"))


def test_keys() -> None:
    found = settings(tenants={"a": {"keys": ["ka", hash_key("kb")]}, "b": {"keys": ["schlüssel-🔑"]}})
    assert found.tenant_for_key("ka") is found.tenants["a"]
    assert found.tenant_for_key("kb") is found.tenants["a"]
    assert found.tenant_for_key("schlüssel-🔑") is found.tenants["b"]
    for wrong in ("", "k", "KA", hash_key("ka"), "ka ", "\udcff"):
        assert found.tenant_for_key(wrong) is None
    assert "ka" not in repr(found.tenants["a"])


def test_the_anonymous_tenant() -> None:
    alone = settings()
    assert alone.anonymous is alone.tenants["default"]
    assert alone.tenant_for_key("") is None
    assert settings(tenants={"a": {"keys": ["k"]}}).anonymous is None
    assert settings(tenants={"default": {"keys": ["k"]}}).anonymous is None
    both = settings(tenants={"default": {}, "a": {"keys": ["k"]}})
    assert both.anonymous is both.tenants["default"]


def test_the_admin_key() -> None:
    found = settings(admin={"key": "root"})
    assert found.is_admin_key("root")
    assert not found.is_admin_key("Root")
    assert not settings().is_admin_key("")


def test_what_a_tenant_carries() -> None:
    found = settings(
        storage={"retention_days": 30},
        tenants={
            "a": {
                "keys": ["k"],
                "may_override": ["policy", "off"],
                "relay": ["/v1/files"],
                "store": "summaries",
                "retention_days": 7,
                "upstream_key": "client",
                "limits": {"in_flight": 5, "summary_tokens_per_day": 0},
            },
            "b": {"keys": ["l"]},
        },
    )
    a, b = found.tenants["a"], found.tenants["b"]
    assert a.may_override == frozenset(("policy", "off"))
    assert (a.relay, a.store, a.retention_days) == (("/v1/files",), "summaries", 7)
    assert (a.upstream_key, a.in_flight, a.summary_tokens_per_day) == ("client", 5, 0)
    assert not b.may_override
    assert (b.relay, b.store, b.retention_days) == ("stateless", "full", 30)
    assert (b.upstream_key, b.in_flight, b.summary_tokens_per_day) == ("config", None, None)


def test_settings_cannot_be_changed() -> None:
    found = settings()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.anonymous = None  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.tenants["x"] = found.tenants["default"]  # type: ignore[index]
