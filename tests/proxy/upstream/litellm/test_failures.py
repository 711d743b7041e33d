"""What a call that litellm could not complete amounts to."""

import json
from typing import Any

import pytest

from transom.proxy.errors import TransomError, UpstreamAuth, UpstreamBadResponse, UpstreamTimeout, UpstreamUnreachable
from transom.proxy.upstream.base import Deadlines
from transom.proxy.upstream.direct import DirectUpstream
from transom.proxy.upstream.litellm.call import Call, Refusal
from transom.proxy.upstream.litellm.failures import fault, refusal
from transom.proxy.upstream.litellm.library import FetchRefused

SECRET = "api-key-0123456789"


def call(**fields: Any) -> Call:
    return Call(DirectUpstream(Deadlines()), **fields)


def error(refused: Refusal) -> dict[str, Any]:
    found = json.loads(refused.body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return dict(found)


def shaped(status: int, body: Any, **headers: str) -> tuple[Refusal, dict[str, Any]]:
    found = refusal(Refusal(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode()))
    return found, error(found)


@pytest.mark.parametrize(
    ("body", "message", "kind"),
    [
        ({"error": {"message": "m", "type": "t", "param": "p", "code": "c"}}, "m", "t"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "m", "overloaded_error"),
        ([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], "m", "INVALID_ARGUMENT"),
        ({"message": "m"}, "m", "invalid_request_error"),
        ({"detail": "m"}, "m", "invalid_request_error"),
        ({"error": "m"}, "m", "invalid_request_error"),
        (b"<html>", "The model's provider refused the request with status 400.", "invalid_request_error"),
        ([1], "The model's provider refused the request with status 400.", "invalid_request_error"),
        ({}, "The model's provider refused the request with status 400.", "invalid_request_error"),
    ],
)
def test_refusals_in_all_words(body: Any, message: str, kind: str) -> None:
    _, found = shaped(400, body)
    assert (found["message"], found["type"]) == (message, kind)


def test_param_and_code_of_openai_stay() -> None:
    _, found = shaped(400, {"error": {"message": "m", "param": "p", "code": "c"}})
    assert (found["param"], found["code"]) == ("p", "c")


def test_a_context_that_is_too_long_has_openais_code() -> None:
    _, found = shaped(400, {"error": {"message": "prompt is too long: 5000 tokens > 4000 maximum"}})
    assert found["code"] == "context_length_exceeded"


def test_a_wrong_google_key_is_a_401() -> None:
    found, _ = shaped(400, {"error": {"message": "API key not valid. Please pass a valid API key."}})
    assert found.status == 401


def test_a_delay_in_the_body_becomes_a_header() -> None:
    body = {"error": {"message": "m", "details": [{"retryDelay": "6.2s"}]}}
    assert shaped(429, body)[0].headers["retry-after"] == "7"
    assert refusal(Refusal(429, {"retry-after": "3"}, json.dumps(body).encode())).headers["retry-after"] == "3"


def test_secrets_of_the_environment_are_struck_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", SECRET)
    found, _ = shaped(403, {"error": {"message": f"not with {SECRET}"}})
    assert SECRET.encode() not in found.body


def test_the_wire_has_the_first_word() -> None:
    timeout = UpstreamTimeout()
    assert fault(ValueError(), call(failure=timeout), ()) is timeout
    refused = fault(ValueError(), call(refusal=Refusal(429, {}, b"{}")), ())
    assert isinstance(refused, Refusal)
    assert refused.status == 429
    assert isinstance(fault(ValueError(), call(answered=True), ()), UpstreamBadResponse)
    own = UpstreamAuth()
    assert fault(own, call(failure=timeout), ()) is own


@pytest.mark.parametrize(
    ("tail", "status"),
    [
        (b'event: error\ndata: {"error": {"type": "overloaded_error", "message": "m"}}\n\n', 529),
        (b'data: {"error": {"code": 429, "message": "m"}}\n\n', 429),
        (b'{"error": {"code": "x", "message": "m"}}', 500),
    ],
)
def test_an_error_within_an_answer(tail: bytes, status: int) -> None:
    found = fault(ValueError(), call(answered=True, tail=tail), ())
    assert isinstance(found, Refusal)
    assert (found.status, error(found)["message"]) == (status, "m")


def failing(raised: Exception, *sent: str) -> TransomError | Refusal:
    return fault(raised, call(), sent)


class UnsupportedParamsError(Exception):
    status_code = 400


def test_a_field_that_is_not_taken_is_named() -> None:
    raised = UnsupportedParamsError("x does not support parameters: ['seed'], for model=y; allowed_openai_params")
    found = failing(raised, "model", "messages", "seed", "n")
    assert isinstance(found, Refusal)
    assert error(found)["param"] == "seed"
    assert "seed" in error(found)["message"]
    assert error(found)["message"].startswith("The model's provider does not take seed;")


def test_of_anything_else_only_the_kind_is_told() -> None:
    for raised in (ValueError(f"Traceback {SECRET}"), UnsupportedParamsError(SECRET)):
        found = failing(raised, "n")
        assert isinstance(found, Refusal)
        assert found.status == 400
        assert SECRET.encode() not in found.body
        assert type(raised).__name__.encode() in found.body


def test_what_would_be_fetched_is_asked_for_as_data() -> None:
    raised = ValueError("wrapped")
    raised.__cause__ = FetchRefused()
    found = failing(raised)
    assert isinstance(found, Refusal)
    assert error(found)["param"] == "messages"


def test_the_operators_matters() -> None:
    class Denied(Exception):
        status_code = 401

    assert isinstance(failing(Denied()), UpstreamAuth)
    raised = ValueError("wrapped")
    raised.__context__ = ImportError("No module named 'google'", name="google")
    found = failing(raised)
    assert isinstance(found, UpstreamUnreachable)
    assert "google" in found.message
    found = failing(ValueError("litellm.BadRequestError: LLM Provider NOT provided. You passed model=x/y"))
    assert isinstance(found, UpstreamUnreachable)
    assert "provider/model" in found.message


def test_an_unknown_model() -> None:
    class Missing(Exception):
        status_code = 404

    found = failing(Missing())
    assert isinstance(found, Refusal)
    assert (found.status, error(found)["code"]) == (404, "model_not_found")
