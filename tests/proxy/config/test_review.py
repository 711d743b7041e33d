"""What a configuration comes to, and its warnings."""

from typing import Any

import pytest

from transom.proxy.config.load import for_upstream, from_mapping, from_text
from transom.proxy.config.review import Review, review
from transom.proxy.config.settings import compile_settings


def reviewed(**mapping: Any) -> Review:
    mapping.setdefault("model_list", [entry("m", "openai/m", {"max_input_tokens": 10_000})])
    mapping.setdefault("tenants", {"t": {"keys": ["k"]}})
    return review(compile_settings(from_mapping(mapping, environment={})))


def entry(name: str, model: str, info: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    params.setdefault("api_key", "k")
    return {"model_name": name, "litellm_params": {"model": model, **params}, "model_info": info or {}}


def policy(**keys: Any) -> dict[str, Any]:
    return {"default": {"max_tool_calls_per_turn": 10, **keys}}


def test_a_route() -> None:
    (route,) = reviewed(
        model_list=[entry("m", "openai/m", {"max_input_tokens": 10_000}, api_base="http://llm.example:81/v1")],
        policies={"p": {"preset": "voice", "enforce": "audit"}},
    ).routes
    assert (route.tenant, route.model, route.policy, route.enforce) == ("t", "m", "p", "audit")
    assert route.strategy == ("compress", "truncate")
    assert (route.window_tokens, route.max_tokens, route.message_tokens) == (10_000, 4000, 4000)
    assert (route.max_context_items, route.tool_calls_cap) == (20, 10)
    assert (route.requests_go_to, route.summaries_go_to) == ("llm.example:81", None)


@pytest.mark.parametrize(
    ("keys", "window", "tokens"),
    [
        ({"max_tokens": 4000}, 10_000, 4000),
        ({"max_tokens": 9000}, 10_000, 5904),
        ({"max_tokens": "auto"}, 10_000, 5904),
        ({"max_tokens": None}, 10_000, 5904),
        ({"max_tokens": 4000}, None, 4000),
        ({"max_tokens": "auto"}, None, None),
        ({"max_tokens": "auto", "reserve_tokens": 0}, 10_000, 10_000),
        ({"max_tokens": "auto", "reserve_tokens": 20_000}, 10_000, 5_000),
        ({"strategy": "none"}, 10_000, None),
    ],
)
def test_effective_token_limits(keys: dict[str, Any], window: int | None, tokens: int | None) -> None:
    (route,) = reviewed(
        model_list=[entry("m", "openai/m", {"max_input_tokens": window})], policies=policy(**keys)
    ).routes
    assert route.message_tokens == tokens


def test_where_summaries_go() -> None:
    found = reviewed(
        model_list=[entry("m", "openai/m", {"max_input_tokens": 10_000}), entry("s", "anthropic/claude-sonnet-4-5")],
        policies={
            "default": {"preset": "chat", "summary_model": "s"},
            "own": {"preset": "chat"},
            "cut": {"preset": "chat", "strategy": "truncate"},
        },
        tenants={"a": {"keys": ["1"]}, "b": {"keys": ["2"], "policy": "own"}, "c": {"keys": ["3"], "policy": "cut"}},
    )
    goes = {(route.tenant, route.model): route.summaries_go_to for route in found.routes}
    assert goes["a", "m"] == "anthropic (through litellm)"
    assert goes["b", "m"] == "api.openai.com"
    assert goes["c", "m"] is None
    assert found.warnings == ()


def test_a_summary_model_that_is_not_there_leaves_the_summaries_to_the_requests_own() -> None:
    (route,) = reviewed(model_list=[entry("m", "openai/m")], policies=policy(summary_model="nope")).routes
    assert route.summaries_go_to == route.requests_go_to == "api.openai.com"


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"policies": policy(max_tokens=5000)}, []),
        (
            {"policies": policy(max_tokens=9000)},
            [
                (
                    "tenant t, model m: max_tokens 9000 can't be reached: the window of 10000 tokens "
                    "less reserve_tokens 4096 is the limit"
                )
            ],
        ),
        (
            {"policies": policy(reserve_tokens=10_000)},
            [
                (
                    "tenant t, model m: reserve_tokens 10000 is more than half of the window of 10000 tokens; "
                    "5000 are kept for the answer"
                )
            ],
        ),
        (
            {"model_list": [entry("m", "openai/m")]},
            [
                (
                    "tenant t, model m: its window is unknown, so no request is cut to fit it until the model has "
                    "refused one as too long; set model_info.max_input_tokens"
                )
            ],
        ),
        ({"model_list": [entry("m", "openai/m")], "policies": policy(max_tokens=4000)}, []),
        ({"model_list": [entry("m", "openai/m")], "policies": policy(strategy="none")}, []),
        ({"model_list": [entry("m", "openai/m")], "policies": policy(enforce="off")}, []),
        (
            {"policies": {"default": {}}},
            [
                (
                    "policy default: max_tool_calls_per_turn is not set: the default, 10 a turn, holds; "
                    "write a number, or null for no cap"
                )
            ],
        ),
        ({"policies": {**policy(), "unused": {}}}, []),
        (
            {"policies": {**policy(), "chosen": {}}, "tenants": {"t": {"keys": ["k"], "may_override": ["policy"]}}},
            [
                (
                    "policy chosen: max_tool_calls_per_turn is not set: the default, 10 a turn, holds; "
                    "write a number, or null for no cap"
                )
            ],
        ),
        (
            {"policies": policy(summary_model="nope")},
            [
                (
                    "tenant t, model m: summary_model nope is not one of this tenant's models, so a request's own "
                    "model writes its summaries"
                )
            ],
        ),
        ({"policies": policy(summary_model="nope", strategy="truncate")}, []),
        (
            {"tenants": {"default": {}}, "server": {"allow_anonymous": True, "host": "0.0.0.0"}},
            [
                (
                    "server.allow_anonymous: whoever reaches 0.0.0.0:8000 uses the models of the tenant default "
                    "without a key"
                )
            ],
        ),
        (
            {"tenants": {"default": {}}, "server": {"host": "0.0.0.0"}},
            ["no tenant has a key, so requests from other machines to 0.0.0.0 are answered with 401"],
        ),
        ({"tenants": {"default": {}}}, []),
        ({"tenants": {"t": {"keys": ["k"]}, "u": {}}}, ["tenant u: has no keys, so nobody can use it"]),
        ({"tenants": {"t": {"keys": ["k"], "relay": "all"}}}, []),
        ({"tenants": {"t": {"keys": ["k"], "relay": "none"}, "u": {"keys": ["l"]}}}, []),
        (
            {
                "tenants": {
                    "t": {"keys": ["k"], "relay": "all"},
                    "u": {"keys": ["l"], "relay": ["files"]},
                    "v": {"keys": ["m"], "relay": "all", "upstream_key": "client"},
                }
            },
            [
                f"tenant {name}: relay lets it read and delete what other tenants keep at the same provider"
                for name in ("t", "u")
            ],
        ),
        ({"tenants": {}}, ["tenants is empty, so nobody can use the proxy"]),
        ({"model_list": []}, ["model_list is empty, so every request is answered with 404"]),
        (
            {"model_list": [entry("m", "openai/gpt-4o", api_key=None)]},
            ["model m: has no api_key, so OpenAI will refuse its requests"],
        ),
        (
            {
                "model_list": [entry("m", "openai/gpt-4o", api_key=None)],
                "tenants": {"t": {"keys": ["k"], "upstream_key": "client"}},
            },
            [],
        ),
        (
            {"model_list": [entry("m", "openai/gpt-4o", {"max_tokens": 5}, rpm=5)]},
            ["model m: rpm, model_info.max_tokens have no effect here"],
        ),
        ({"model_list": [entry("m", "openai/gpt-4o", timeout=5)]}, ["model m: timeout has no effect here"]),
    ],
)
def test_warnings(mapping: dict[str, Any], said: list[str]) -> None:
    mapping.setdefault("policies", policy())
    assert list(reviewed(**mapping).warnings) == said


def test_keys_that_a_file_holds_as_they_are_are_pointed_out_and_not_quoted() -> None:
    text = """
model_list: [{model_name: demo, litellm_params: {model: transom/demo}}]
admin: {key: plain-admin}
tenants:
  a: {keys: [os.environ/KEY]}
  b:
    keys:
      - sha256:%s
      - plain-tenant
""" % ("0" * 64)
    config = from_text(text, "config.yaml", environment={"KEY": "k"})
    advice = (
        "is written in plain; write os.environ/NAME, file:PATH, or its hash: sha256: and what "
        "`printf %s KEY | sha256sum` prints"
    )
    assert review(compile_settings(config)).warnings == (
        f"config.yaml:3: admin.key: {advice}",
        f"config.yaml:9: tenants.b.keys[1]: {advice}",
    )


def test_a_key_set_in_the_environment_stands_in_no_file() -> None:
    config = from_text("", "config.yaml", environment={"TRANSOM__ADMIN__KEY": "plain-admin"})
    assert config.remarks == ()


def test_the_star_is_reviewed_by_its_entry() -> None:
    found = review(compile_settings(for_upstream("http://localhost:8080/v1", environment={})))
    assert [(route.model, route.requests_go_to) for route in found.routes] == [("*", "localhost:8080")]
    assert found.warnings == ()
