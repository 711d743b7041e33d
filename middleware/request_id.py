"""Gives every request one id, in the scope, in the logs and in the answer; does not know what the id is used for."""

import random
import re
import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[\x21-\x7e]{1,128}")


def request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the client's id if it is 1 to 128 visible ASCII characters, else a new one of 32 hexadecimal digits."""
    for name, value in headers:
        if name == HEADER:
            return value.decode("ascii") if _ACCEPTED.fullmatch(value) else _made()
    return _made()


def _made() -> str:
    # The module's own generator: it spares a system call per request, and a forked worker seeds it anew.
    # Milliseconds first: ids that were made together stand together in the database's index (as in UUID version 7).
    return f"{time.time_ns() // 1_000_000:012x}{random.getrandbits(80):020x}"


class RequestId:
    """Set `scope["state"]["request_id"]` and answer with `X-Request-Id`, unless the application set that itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        made = scope.setdefault("state", {})["request_id"] = request_id(scope["headers"])

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                if HEADER not in {name.lower() for name, _ in headers}:
                    message = {**message, "headers": [*headers, (HEADER, made.encode("ascii"))]}
            return send(message)

        await self._app(scope, receive, send_with_id)
