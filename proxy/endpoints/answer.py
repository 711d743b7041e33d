"""Build the answers of the small endpoints; the chat endpoint sends its own bytes."""

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from transom.proxy.endpoints.permission import meant
from transom.proxy.errors import MethodNotAllowed, TransomError, UnknownUrl, error_body


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer what no route takes, and a method that a route does not take, in OpenAI's shape."""
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == MethodNotAllowed.status:
        return await on_error(request, MethodNotAllowed(headers=error.headers))
    path = meant(request.url.path)
    message = None if path is None else f"There is no such endpoint; did you mean {path}?"
    return await on_error(request, UnknownUrl(message, headers=error.headers))


async def on_error(request: Request, error: Exception) -> Response:
    """Answer with an error of ours; anything else is a fault of this program and is raised again, to be logged."""
    if not isinstance(error, TransomError):
        raise error
    request.scope["state"].get("log", {})["code"] = error.code
    return Response(error_body(error), error.status, error.headers, media_type="application/json")
