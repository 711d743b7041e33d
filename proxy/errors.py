"""Everything that can go wrong with a request, as one table of exceptions that know their own HTTP answer.

It knows statuses, codes and sentences; it does not know who raises them, HTTP frameworks, or what was in the request.
The tree, split by whose fault it is:

    TransomError
    ├── ClientError                      the request cannot be served as it was sent
    │   ├── BadRequest                   400  invalid_request_error
    │   │   ├── InvalidSessionId         400  invalid_session_id
    │   │   ├── SessionRequired          400  session_required
    │   │   ├── ContextLengthExceeded    400  context_length_exceeded
    │   │   └── ToolCallLimitExceeded    400  tool_call_limit_exceeded
    │   ├── InvalidApiKey                401  invalid_api_key
    │   ├── ModelNotAllowed              403  model_not_allowed
    │   ├── EndpointNotAllowed           403  endpoint_not_allowed
    │   ├── OverrideNotAllowed           403  override_not_allowed
    │   ├── ModelNotFound                404  model_not_found
    │   ├── SessionNotFound              404  session_not_found
    │   ├── NotWindowed                  404  not_windowed
    │   ├── UnknownUrl                   404  unknown_url
    │   ├── MethodNotAllowed             405  method_not_allowed
    │   ├── SessionConflict              409  session_conflict
    │   ├── BodyTooLarge                 413  body_too_large
    │   ├── UnsupportedEncoding          415  unsupported_encoding
    │   └── RateLimited                  429  rate_limit_exceeded
    ├── UpstreamError                    the model's server did not give a usable answer
    │   ├── UpstreamUnreachable          502  upstream_unreachable
    │   ├── UpstreamTimeout              504  upstream_timeout
    │   ├── UpstreamBadResponse          502  upstream_bad_response
    │   │   └── UpstreamBroken           502  upstream_bad_response
    │   └── UpstreamAuth                 502  upstream_auth
    └── ServiceError                     this proxy cannot serve now
        ├── StorageUnavailable           503  storage_unavailable
        ├── Overloaded                   503  overloaded
        └── ShuttingDown                 503  shutting_down

OpenAI's SDKs repeat 408, 409, 429 and 5xx on their own unless the answer says `x-should-retry: false`.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from transom.proxy.clipping import clipped

__all__ = [
    "BadRequest",
    "BodyTooLarge",
    "ClientError",
    "ContextLengthExceeded",
    "EndpointNotAllowed",
    "InvalidApiKey",
    "InvalidSessionId",
    "MethodNotAllowed",
    "ModelNotAllowed",
    "ModelNotFound",
    "NotWindowed",
    "Overloaded",
    "OverrideNotAllowed",
    "RateLimited",
    "ServiceError",
    "SessionConflict",
    "SessionNotFound",
    "SessionRequired",
    "ShuttingDown",
    "StorageUnavailable",
    "ToolCallLimitExceeded",
    "TransomError",
    "UnknownUrl",
    "UnsupportedEncoding",
    "UpstreamAuth",
    "UpstreamBadResponse",
    "UpstreamBroken",
    "UpstreamError",
    "UpstreamTimeout",
    "UpstreamUnreachable",
    "error_body",
    "sse_error",
]


class TransomError(Exception):
    """Stand at the root: an error that is its own answer to the client.

    Args:
        message: one sentence a person can act on, without message text, keys or upstream addresses;
            the class's own sentence when left out.
        param: the place in the request, e.g. `messages[3].role`.
        headers: further response headers, lower-case; they override the class's own.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    sentence: ClassVar[str] = "The proxy met an unexpected error."
    answer_headers: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, message: str | None = None, *, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.message = message or self.sentence
        self.param = param
        self.headers: dict[str, str] = {**self.answer_headers, **(headers or {})}
        super().__init__(self.message)


NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}


class ClientError(TransomError):
    """Raise when the request cannot be served as it was sent."""

    status = 400
    code = "invalid_request_error"
    type = "invalid_request_error"
    sentence = "The request is not valid."


class BadRequest(ClientError):
    """Raise when the body is not what the endpoint takes; `param` names the place."""


class InvalidSessionId(BadRequest):
    """Raise when a session header is not visible ASCII of at most 256 characters."""

    code = "invalid_session_id"
    sentence = "The session id must be visible ASCII of at most 256 characters."


class SessionRequired(BadRequest):
    """Raise when no session key came and `session.missing` is `reject`, or a delta came without a session header."""

    code = "session_required"
    sentence = "This endpoint needs a session id, e.g. in the X-Session-Id header."


class ContextLengthExceeded(BadRequest):
    """Raise when nothing that may be removed would make the request fit, under `on_unfit: error`."""

    code = "context_length_exceeded"
    sentence = "The request does not fit the model's context window and nothing more may be removed from it."


class ToolCallLimitExceeded(BadRequest):
    """Raise when a turn has used up its tool calls, under `on_tool_limit: error`."""

    code = "tool_call_limit_exceeded"
    sentence = "This turn has reached its limit of tool calls."


class InvalidApiKey(ClientError):
    """Raise when no key came, or one that belongs to nobody."""

    status = 401
    code = "invalid_api_key"
    sentence = "No valid API key was given; send one as `Authorization: Bearer …`."


class ModelNotAllowed(ClientError):
    """Raise when the model exists and this tenant may not use it."""

    status = 403
    code = "model_not_allowed"
    sentence = "This key may not use the requested model."


class EndpointNotAllowed(ClientError):
    """Raise when the path is not one this tenant may have relayed."""

    status = 403
    code = "endpoint_not_allowed"
    sentence = "The requested endpoint is not relayed for this tenant; its `relay` in the configuration may name it."


class OverrideNotAllowed(ClientError):
    """Raise when a header would override the policy and the tenant's `may_override` does not list it."""

    status = 403
    code = "override_not_allowed"
    sentence = "This key may not override the window policy; `may_override` of its tenant says what it may."


class ModelNotFound(ClientError):
    """Raise when no model of that name is configured; the name is the client's own word and shown clipped."""

    status = 404
    code = "model_not_found"
    sentence = "The requested model is not configured; GET /v1/models lists those that are."

    def __init__(self, name: str | None = None) -> None:
        message = None
        if name is not None:
            message = f"The model `{clipped(name)}` is not configured; GET /v1/models lists those that are."
        super().__init__(message, param="model")


class SessionNotFound(ClientError):
    """Raise when the parent of a delta is not stored: never written, erased or expired."""

    status = 404
    code = "session_not_found"
    sentence = "The conversation that this message continues is not stored; send the full history."


class NotWindowed(ClientError):
    """Raise for endpoints of conversations whose windowing does not exist yet."""

    status = 404
    code = "not_windowed"
    sentence = "This endpoint is not windowed; switch the client to /v1/chat/completions."


class UnknownUrl(ClientError):
    """Raise where no endpoint is."""

    status = 404
    code = "unknown_url"
    sentence = "There is no such endpoint; chat completions are at /v1/chat/completions."


class MethodNotAllowed(ClientError):
    """Raise where an endpoint is that does not take the request's method."""

    status = 405
    code = "method_not_allowed"
    sentence = "This endpoint does not take this method."


class SessionConflict(ClientError):
    """Raise when a delta does not continue any thread of its session; the same delta would conflict again."""

    status = 409
    code = "session_conflict"
    sentence = "X-Transom-Parent is not the head of a thread of this session."
    answer_headers = NO_RETRY


class BodyTooLarge(ClientError):
    """Raise when the body exceeds `limits.body_bytes`."""

    status = 413
    code = "body_too_large"
    sentence = "The request body is larger than this server accepts."


class UnsupportedEncoding(ClientError):
    """Raise when the body is compressed."""

    status = 415
    code = "unsupported_encoding"
    sentence = "Compressed request bodies are not accepted; send the body without Content-Encoding."


class RateLimited(ClientError):
    """Raise when a tenant has as many requests under way as its `limits.in_flight` allows."""

    status = 429
    code = "rate_limit_exceeded"
    type = "requests"  # as OpenAI names the limit that was reached
    sentence = "Too many requests of this key are in flight."
    answer_headers: ClassVar[Mapping[str, str]] = {"retry-after": "1"}


class UpstreamError(TransomError):
    """Raise when the model's server did not give a usable answer."""

    status = 502
    code = "upstream_bad_response"
    type = "upstream_error"
    sentence = "The model's server did not give a usable answer."


class UpstreamUnreachable(UpstreamError):
    """Raise when no connection came about (refused, DNS, TLS, no route): nothing was sent, a retry costs nothing."""

    code = "upstream_unreachable"
    sentence = "The model's server could not be reached."


class UpstreamTimeout(UpstreamError):
    """Raise when the upstream missed a deadline; the work may still be going on and be paid, so no retry."""

    status = 504
    code = "upstream_timeout"
    sentence = "The model's server did not answer in time."
    answer_headers = NO_RETRY


class UpstreamBadResponse(UpstreamError):
    """Raise when an answer came and is not one: redirect, HTML, malformed or empty; it may be paid, so no retry."""

    sentence = "The model's server gave an answer that is not valid."
    answer_headers = NO_RETRY


class UpstreamBroken(UpstreamBadResponse):
    """Raise when the connection died, or the answer burst its bound, after the request was sent.

    `kind` is a word for logs and labels: `reset`, `too_large`, `encoding`.
    """

    sentence = "The connection to the model's server broke before the answer was complete."

    def __init__(self, kind: str, message: str | None = None) -> None:
        self.kind = kind
        super().__init__(message)


class UpstreamAuth(UpstreamError):
    """Raise when the upstream refuses the configured key: the operator's matter, and a retry repeats it."""

    code = "upstream_auth"
    sentence = "The model's server refused the configured API key; check the model's api_key."
    keyless = (
        "The model's server asks for an API key, and none is configured for this model: set its api_key, or "
        "upstream_key: client and send your own as `Authorization: Bearer …`."
    )
    answer_headers = NO_RETRY


class ServiceError(TransomError):
    """Raise when this proxy cannot serve now and could later."""

    status = 503
    code = "service_unavailable"
    sentence = "The proxy cannot serve this request now."
    answer_headers: ClassVar[Mapping[str, str]] = {"retry-after": "1"}


class StorageUnavailable(ServiceError):
    """Raise when the store fails and the request must not be served without it."""

    code = "storage_unavailable"
    sentence = "The conversation store is not available."


class Overloaded(ServiceError):
    """Raise when `limits.in_flight`, in number or in bytes, is reached."""

    code = "overloaded"
    sentence = "Too many requests are in flight."


class ShuttingDown(ServiceError):
    """Raise when the process drains; another one takes over within seconds."""

    code = "shutting_down"
    sentence = "The proxy is shutting down."
    answer_headers: ClassVar[Mapping[str, str]] = {"retry-after": "5"}


def error_body(error: TransomError) -> bytes:
    """Return the JSON body of an error in OpenAI's shape."""
    fields = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": fields})


def sse_error(error: TransomError) -> bytes:
    """Return the error as one server-sent event, for a stream whose status has gone out already."""
    return b"data: " + error_body(error) + b"\n\n"
