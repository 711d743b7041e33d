"""Build the answers of the small endpoints; the chat endpoint sends its own bytes."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from transom.proxy.errors import TransomError, error_body


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer with an error of ours; anything else is a fault of this program and is raised again, to be logged."""
    if not isinstance(error, TransomError):
        raise error
    return Response(error_body(error), error.status, error.headers, media_type="application/json")
