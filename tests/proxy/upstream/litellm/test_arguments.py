"""What of a request reaches litellm, and what is refused before it does."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from transom.proxy.config.settings import OTHER, Model
from transom.proxy.errors import BadRequest, InvalidApiKey, ModelNotFound
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.upstream.litellm.arguments import OPENAI, READ_HERE, arguments

STEERING = frozenset({"api_base", "metadata", "model", "thinking", "mock_response"})
CLAUDE = Model(
    name="claude",
    provider="litellm",
    upstream_model="anthropic/claude",
    api_base="http://a",
    api_key="sk-configured",
    label="claude",
    params={"api_version": "1"},
)


def built(model: Model = CLAUDE, *, request: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    body = json.dumps({"model": "m", "messages": [], **fields}).encode()
    return arguments(UpstreamRequest(model, body, **(request or {})), STEERING, 9)


def test_the_fields_are_those_of_openais_own_package() -> None:
    assert set(CompletionCreateParamsBase.__annotations__) | {"stream"} <= OPENAI | READ_HERE


def test_fields_of_openais_api_go_through() -> None:
    every = dict.fromkeys(OPENAI - {"model", "stream"}, 1)
    assert built(**every).items() >= every.items()


def test_what_the_model_entry_says_has_the_last_word() -> None:
    found = built(stream=True, request={"stream": False, "headers": [("x-request-id", "r")]})
    assert {name: found[name] for name in ("model", "api_base", "api_key", "api_version", "stream", "timeout")} == {
        "model": "anthropic/claude",
        "api_base": "http://a",
        "api_key": "sk-configured",
        "api_version": "1",
        "stream": False,
        "timeout": 9,
    }
    assert (found["max_retries"], found["num_retries"], found["caching"]) == (0, 0, False)


def test_fields_read_here_and_nulls_are_left_out() -> None:
    found = built(metadata={"a": 1}, litellm_session_id="s", temperature=None)
    assert READ_HERE.isdisjoint(found)
    assert "temperature" not in found


@pytest.mark.parametrize("value", ["http://evil", 1, True, [], {}, None])
@pytest.mark.parametrize("name", ["api_base", "mock_response", "extra_body", "top_k"])
def test_other_fields_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        built(**{name: value})
    assert caught.value.param == name


def test_a_model_lets_fields_of_its_provider_pass() -> None:
    model = replace(CLAUDE, passthrough_fields=("top_k", "thinking", "mock_response"))
    assert built(model, top_k=3, thinking={"type": "enabled"}).items() >= {"top_k": 3}.items()
    with pytest.raises(BadRequest):
        built(model, mock_response="hi")


@pytest.mark.parametrize("body", [b'{"model": "m", "messages": [NaN]}', b"[]", b'{"a": "\xff"}'])
def test_what_cannot_be_decoded_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        arguments(UpstreamRequest(CLAUDE, body), STEERING, 9)


def test_headers_that_frame_the_request_are_litellms() -> None:
    headers = [("user-agent", "x"), ("accept", "*/*"), ("x-stainless-os", "Linux"), ("traceparent", "00-1")]
    model = replace(CLAUDE, extra_headers={"x-team": "a"})
    assert built(model, request={"headers": headers})["extra_headers"] == {"traceparent": "00-1", "x-team": "a"}
    assert built()["extra_headers"] is None


def test_the_clients_own_key_takes_the_place_of_the_configured_one() -> None:
    assert built(request={"bearer": "sk-own"})["api_key"] == "sk-own"


@pytest.mark.parametrize("bearer", ["os.environ/HOME", "oidc/github/x"])
def test_a_key_that_litellm_would_look_up_is_refused(bearer: str) -> None:
    with pytest.raises(InvalidApiKey):
        built(request={"bearer": bearer})


@pytest.mark.parametrize("name", ["https://evil/x", "../../admin", "a b", "a?key=1", "x\n"])
def test_a_name_that_a_client_chose_must_be_a_plain_one(name: str) -> None:
    chosen = replace(CLAUDE, upstream_model=f"huggingface/{name}", label=OTHER)
    with pytest.raises(ModelNotFound):
        built(chosen)
    assert built(replace(chosen, label="m"))["model"] == f"huggingface/{name}"
    assert built(replace(chosen, upstream_model="bedrock/arn:aws:bedrock:x/y-1.0"))
