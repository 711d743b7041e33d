"""What a call that litellm could not complete amounts to: a provider's refusal in OpenAI's shape, or an error of ours.

litellm's own texts are never shown: they hold tracebacks, addresses and keys.

1. What the network says comes first: the proxy's own error, then the provider's refusal.
2. Without a request to the provider, litellm found that the request cannot be translated, or the model not be called.
3. An error within an answer that began with 2xx is a refusal as long as nothing of it has been passed on.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from transom.proxy.errors import (
    BadRequest,
    ClientError,
    ModelNotFound,
    TransomError,
    UpstreamAuth,
    UpstreamBadResponse,
    UpstreamUnreachable,
    error_body,
)
from transom.proxy.overflow import read_overflow
from transom.proxy.upstream.auth import redact_bytes
from transom.proxy.upstream.litellm.call import Call, Refusal
from transom.proxy.upstream.litellm.library import FetchRefused

__all__ = ["fault", "refusal"]

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
# What every request has, and litellm's sentences are full of.
ALWAYS = frozenset({"model", "messages", "stream"})
SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")
# Gemini answers a wrong key with 400.
WRONG_KEY = re.compile(rb"API_KEY_INVALID|API key not valid|API key expired")
RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
# What providers call an overload within a stream, and the status they use outside of one.
STREAM_STATUSES = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "throttlingException": 429,
    "serviceUnavailableException": 503,
}


def refusal(refused: Refusal) -> Refusal:
    """Return a provider's refusal in OpenAI's shape: its own words and type, without secrets of the environment."""
    status = 401 if refused.status == 400 and WRONG_KEY.search(refused.body) else refused.status
    error = _error_in(refused.body)
    fields = {
        "message": _message(error) or f"The model's provider refused the request with status {status}.",
        "type": _text(error, "type") or _text(error, "status") or TYPES.get(status, _type(status)),
        "param": _text(error, "param"),
        "code": _code(error, refused),
    }
    headers = dict(refused.headers) | {"content-type": "application/json"}
    if "retry-after" not in headers and (delay := RETRY_DELAY.search(refused.body)) is not None:
        headers["retry-after"] = str(math.ceil(float(delay[1])))
    return Refusal(status, headers, redact_bytes(msgspec.json.encode({"error": fields}), _environment()))


def fault(raised: Exception, call: Call, sent: Iterable[str]) -> TransomError | Refusal:
    """Return what became of a call that litellm ended with an exception.

    Args:
        raised: by litellm, or on the way to it.
        call: what passed on the wire.
        sent: names of the request's fields.
    """
    if isinstance(raised, TransomError):
        return raised
    if call.failure is not None:
        return call.failure
    if call.refusal is not None:
        return refusal(call.refusal)
    if call.answered:
        return _within(call) or UpstreamBadResponse()
    error = _untranslated(raised, sent)
    if isinstance(error, ClientError):
        # As if the provider had said so: there may be another form of the request.
        return Refusal(error.status, {"content-type": "application/json"}, error_body(error))
    return error


def _within(call: Call) -> Refusal | None:
    """Return the error that the end of an answer tells of."""
    for line in reversed(call.tail.splitlines()):
        body = line.removeprefix(b"data:").strip()
        found = _parsed(body)
        if found is not None and "error" in found:
            return refusal(Refusal(_status(_error_in(body)), call.headers, body))
    return None


def _status(error: dict[str, Any]) -> int:
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return STREAM_STATUSES.get(_text(error, "type") or "", 500)


def _untranslated(raised: Exception, sent: Iterable[str]) -> TransomError:
    kind = type(raised).__name__
    causes = list(_causes(raised))
    status = getattr(raised, "status_code", None)
    for missing in (cause.name for cause in causes if isinstance(cause, ImportError)):
        name = missing or "it asks for"
        return UpstreamUnreachable(f"The model's provider needs the Python package {name}, which is not installed.")
    if any(isinstance(cause, FetchRefused) or type(cause).__name__ == "ImageFetchError" for cause in causes):
        return BadRequest(
            "The model's provider takes pictures and documents with the request, and this proxy fetches nothing: "
            "send them as data: URLs.",
            param="messages",
        )
    if status in (401, 403):
        return UpstreamAuth("The model has no key or credentials that its provider would take; check its entry.")
    if status == 404:
        return ModelNotFound()
    if "LLM Provider NOT provided" in str(raised):  # litellm has no class of its own for it
        return UpstreamUnreachable(
            "The model's entry names no provider that litellm knows; write its litellm_params.model as provider/model."
        )
    return _not_taken(str(raised), sent) if kind == "UnsupportedParamsError" else _untranslatable(kind)


def _not_taken(text: str, sent: Iterable[str]) -> BadRequest:
    names = [name for name in sent if name not in ALWAYS and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)]
    if not names:
        return _untranslatable("UnsupportedParamsError")
    listed = ", ".join(names)
    return BadRequest(
        f"The model's provider does not take {listed}; leave it out, or have drop_params set in the model's entry.",
        param=names[0],
    )


def _untranslatable(kind: str) -> BadRequest:
    return BadRequest(
        f"The request cannot be translated for the model's provider; check its messages, tools and values ({kind})."
    )


def _causes(raised: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what led to it; litellm wraps what its parts raise."""
    while raised is not None:
        yield raised
        raised = raised.__cause__ or raised.__context__


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, dict) else None


def _error_in(body: bytes) -> dict[str, Any]:
    """Return the part of a body that speaks of an error, of whatever provider."""
    found = _parsed(body) or {}
    error = found.get("error", found)
    return error if isinstance(error, dict) else found | {"message": error}


def _message(error: dict[str, Any]) -> str | None:
    for name in ("message", "Message", "detail", "error_description", "msg", "errorMessage"):
        if text := _text(error, name):
            return text
    return None


def _text(error: dict[str, Any], name: str) -> str | None:
    value = error.get(name)
    return value if isinstance(value, str) and value else None


def _type(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def _code(error: dict[str, Any], refused: Refusal) -> str | None:
    if read_overflow(refused.status, refused.body) is not None:
        return "context_length_exceeded"
    return _text(error, "code")


def _environment() -> list[str]:
    """Return the environment's secrets: litellm reads keys there that no configuration names."""
    return [value for name, value in os.environ.items() if name.upper().endswith(SECRET_NAMES)]
