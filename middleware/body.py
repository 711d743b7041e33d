"""Reads a request's body within a bound; does not know what is in it nor how a refusal is worded."""

from starlette.types import Receive


class BodyTooLarge(Exception):
    """The body is longer than the limit; nothing more of it has been read."""


class ClientGone(Exception):
    """The client disconnected before its body was complete."""


def content_length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """Return the declared length in bytes, or None where there is none (a chunked body)."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


async def read_body(receive: Receive, limit: int, declared: int | None = None) -> bytes:
    """Read the whole body of at most `limit` bytes.

    `declared` is the value of Content-Length, if there is one: too large a value is refused without reading on.
    Raises BodyTooLarge and ClientGone.
    """
    if declared is not None and declared > limit:
        raise BodyTooLarge
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
