import inspect

import msgspec
import pytest

from transom.proxy import errors
from transom.proxy.errors import TransomError, UpstreamBroken, error_body, sse_error

# 02-http, "Errors", and 06-faults: what a client may rely on.
CONTRACT = [
    (errors.BadRequest, 400, "invalid_request_error"),
    (errors.InvalidSessionId, 400, "invalid_session_id"),
    (errors.SessionRequired, 400, "session_required"),
    (errors.ContextLengthExceeded, 400, "context_length_exceeded"),
    (errors.ToolCallLimitExceeded, 400, "tool_call_limit_exceeded"),
    (errors.InvalidApiKey, 401, "invalid_api_key"),
    (errors.ModelNotAllowed, 403, "model_not_allowed"),
    (errors.EndpointNotAllowed, 403, "endpoint_not_allowed"),
    (errors.OverrideNotAllowed, 403, "override_not_allowed"),
    (errors.ModelNotFound, 404, "model_not_found"),
    (errors.SessionNotFound, 404, "session_not_found"),
    (errors.NotWindowed, 404, "not_windowed"),
    (errors.UnknownUrl, 404, "unknown_url"),
    (errors.MethodNotAllowed, 405, "method_not_allowed"),
    (errors.SessionConflict, 409, "session_conflict"),
    (errors.BodyTooLarge, 413, "body_too_large"),
    (errors.UnsupportedEncoding, 415, "unsupported_encoding"),
    (errors.RateLimited, 429, "rate_limit_exceeded"),
    (errors.UpstreamUnreachable, 502, "upstream_unreachable"),
    (errors.UpstreamTimeout, 504, "upstream_timeout"),
    (errors.UpstreamBadResponse, 502, "upstream_bad_response"),
    (errors.UpstreamAuth, 502, "upstream_auth"),
    (errors.StorageUnavailable, 503, "storage_unavailable"),
    (errors.Overloaded, 503, "overloaded"),
    (errors.ShuttingDown, 503, "shutting_down"),
]


def every_class() -> list[type[TransomError]]:
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, TransomError)]
    return sorted(found, key=lambda one: one.__name__)


@pytest.mark.parametrize(("kind", "status", "code"), CONTRACT)
def test_status_and_code(kind: type[TransomError], status: int, code: str) -> None:
    assert (kind.status, kind.code) == (status, code)


@pytest.mark.parametrize("kind", every_class())
def test_the_tree_in_the_docstring_shows_every_class(kind: type[TransomError]) -> None:
    lines = [line for line in (errors.__doc__ or "").splitlines() if line.strip(" │├└─").startswith(kind.__name__)]

    assert any(line.strip(" │├└─").split()[0] == kind.__name__ for line in lines)
    assert kind.__doc__
    assert kind.__name__ in errors.__all__


@pytest.mark.parametrize(
    "kind", [errors.SessionConflict, errors.UpstreamTimeout, errors.UpstreamBadResponse, errors.UpstreamAuth]
)
def test_what_a_retry_would_repeat_or_pay_twice_says_so(kind: type[TransomError]) -> None:
    assert kind().headers == {"x-should-retry": "false"}


@pytest.mark.parametrize("kind", [errors.StorageUnavailable, errors.Overloaded, errors.ShuttingDown])
def test_our_own_503_says_when_to_come_back(kind: type[TransomError]) -> None:
    assert int(kind().headers["retry-after"]) > 0
    assert "x-should-retry" not in kind().headers


def test_headers_of_one_error_do_not_reach_the_next() -> None:
    errors.Overloaded(headers={"retry-after": "9"})

    assert errors.Overloaded().headers == {"retry-after": "1"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [("gpt-5x", "`gpt-5x`"), ("x" * 64, f"`{'x' * 64}`"), ("x" * 65, f"`{'x' * 64}…`"), ("\ud83d", "`?`")],
)
def test_a_model_that_is_not_there_is_named_but_not_at_any_length(name: str, shown: str) -> None:
    error = msgspec.json.decode(error_body(errors.ModelNotFound(name)))["error"]

    assert error["message"].startswith(f"The model {shown} is not configured")
    assert "GET /v1/models" in error["message"]
    assert error["param"] == "model"


def test_the_body_has_openais_shape() -> None:
    body = error_body(errors.BadRequest("The role is missing.", param="messages[3].role"))

    assert msgspec.json.decode(body) == {
        "error": {
            "message": "The role is missing.",
            "type": "invalid_request_error",
            "param": "messages[3].role",
            "code": "invalid_request_error",
        }
    }


def test_a_stream_gets_the_same_object_as_one_event() -> None:
    error = UpstreamBroken("reset")
    event = sse_error(error)

    assert event == b"data: " + error_body(error) + b"\n\n"
    assert event.count(b"\n") == 2
