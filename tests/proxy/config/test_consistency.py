"""What only the whole configuration shows to be right or wrong."""

from typing import Any

import pytest

from transom.proxy.config.load import ConfigError, from_mapping


def model(name: str) -> dict[str, object]:
    return {"model_name": name, "litellm_params": {"model": "openai/x"}}


@pytest.mark.parametrize(
    "mapping",
    [
        {"model_list": [model("*")], "tenants": {"t": {"models": {"anything": "default"}}}},
        {"model_list": [model("a")], "tenants": {"t": {"models": {"a": "default", "*": "default"}}}},
        {"policies": {"only": {}}, "tenants": {"t": {}}},
        {"policies": {"default": {}, "b": {}}, "tenants": {"t": {}}},
        {"server": {"workers": 4}, "storage": {"url": "postgresql+psycopg://h/d"}},
        {"server": {"admin_port": 9090}},
        {"tenants": {}},
    ],
)
def test_consistent(mapping: dict[str, Any]) -> None:
    from_mapping(mapping, environment={})


@pytest.mark.parametrize(
    ("mapping", "key"),
    [
        ({"tenants": {"t": {"models": {"*": "nope"}}}}, "tenants.t.models.*"),
        ({"tenants": {"t": {"models": {"a": "default"}}}}, "tenants.t.models.a"),
        ({"tenants": {"t": {"policy": "nope"}}}, "tenants.t.policy"),
        ({"policies": {}}, "tenants.default"),
        ({"model_list": [model("a"), model("b"), model("a")]}, "model_list[2].model_name"),
        ({"tenants": {"a": {"keys": ["k"]}, "b": {"keys": ["k"]}}}, "tenants.b.keys[0]"),
        ({"server": {"workers": 2}}, "server.workers"),
    ],
)
def test_inconsistent(mapping: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(mapping, environment={})
    assert [fault.key for fault in caught.value.faults] == [key]


def test_a_key_and_its_hash_are_the_same_key() -> None:
    digest = "sha256:2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"  # of the text "key"
    with pytest.raises(ConfigError, match="is also a key of the tenant a"):
        from_mapping({"tenants": {"a": {"keys": ["key"]}, "b": {"keys": [digest.upper().replace("SHA", "sha")]}}})


def test_a_preset_in_the_place_of_a_policy() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"model_list": [model("a")], "tenants": {"t": {"models": {"a": "agent"}}}}, environment={})
    said = "agent is a preset and no policy; write `agent: {preset: agent}` under policies"
    assert [fault.sentence for fault in caught.value.faults] == [said]


def test_the_own_provider_has_one_model() -> None:
    entry = {"model_name": "m", "litellm_params": {"model": "transom/dmo"}}
    with pytest.raises(ConfigError) as caught:
        from_mapping({"model_list": [entry]}, environment={})
    (fault,) = caught.value.faults
    assert (fault.key, fault.sentence) == (
        "model_list[0].litellm_params.model",
        "the one model of transom is transom/demo",
    )


@pytest.mark.parametrize(
    ("params", "key", "sentence"),
    [
        ({"model": "opnai/gpt-4o"}, "model", "opnai is no provider that litellm knows; did you mean openai/gpt-4o?"),
        (
            {"model": "q", "custom_llm_provider": "antropic"},
            "custom_llm_provider",
            "antropic is no provider that litellm knows; did you mean anthropic?",
        ),
    ],
)
def test_a_provider_that_nobody_knows(params: dict[str, str], key: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"model_list": [{"model_name": "m", "litellm_params": params}]}, environment={})
    (fault,) = caught.value.faults
    assert (fault.key, fault.sentence) == (f"model_list[0].litellm_params.{key}", sentence)
