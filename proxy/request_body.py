"""Reads a request's body for the endpoints that take it whole, and says what is wrong with one that is not taken."""

from starlette.types import Receive, Scope

from transom.middleware.body import BodyTooLarge, content_length, read_body
from transom.proxy import errors


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
