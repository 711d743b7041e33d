"""Reads a request's body for the endpoints that take it whole, and says what is wrong with one that is not taken."""

from starlette.types import Receive, Scope

from transom.middleware.body import BodyTooLarge, content_length, read_body
from transom.proxy import errors

JSON = b"application/json"
CURLS_OWN = b"application/x-www-form-urlencoded"  # of any body: neither a reason to refuse JSON nor one to pass on
NOT_JSON = "The request body must be JSON; send it as `Content-Type: application/json`."


async def whole_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the body, of at most `limit` bytes.

    Raises ClientGone, and the errors UnsupportedEncoding and BodyTooLarge.
    """
    headers = scope["headers"]
    if any(name == b"content-encoding" and value.lower() != b"identity" for name, value in headers):
        raise errors.UnsupportedEncoding
    try:
        return await read_body(receive, limit, content_length(headers))
    except BodyTooLarge:
        raise errors.BodyTooLarge(
            f"The request body is larger than the {limit} bytes that this server accepts."
        ) from None


async def json_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the body of an endpoint that takes JSON only; a type of content that curl made up is struck out.

    Raises as `whole_body` does, and BadRequest for a body that calls itself something else. It is not parsed.
    """
    headers = scope["headers"]
    for name, value in headers:
        if name == b"content-type" and value != JSON and not _is_json(value):
            if value != CURLS_OWN:
                raise errors.BadRequest(NOT_JSON, param="Content-Type")
            scope["headers"] = [pair for pair in headers if pair[0] != b"content-type"]
    return await whole_body(scope, receive, limit)


def _is_json(content_type: bytes) -> bool:
    """Tell whether a body calls itself JSON, with whatever parameters; one that says nothing is taken for it."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in (b"", JSON) or kind.endswith(b"+json")
