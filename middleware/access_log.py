"""Writes one log line per request: ids, route, status, time and bytes; never sees headers, query strings or content."""

import time
from collections.abc import Awaitable
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_GONE = 499
"""Logged as status when the client left before an answer began (nginx's convention; never sent)."""
_PATH_LIMIT = 100


def routed_path(scope: Scope) -> str:
    """Return the matched route's template, so that ids of persons stay out of the log; an unrouted path is clipped."""
    template = getattr(scope.get("route"), "path", None)
    return template if isinstance(template, str) else scope["path"][:_PATH_LIMIT]


class _Exchange:
    """What went over one request's wire, counted while it happens."""

    __slots__ = ("_receive", "_send", "bytes_in", "bytes_out", "complete", "status")

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.bytes_in = 0
        self.bytes_out = 0
        self.status = CLIENT_GONE
        self.complete = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
        return message

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        elif message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)


class AccessLog:
    """Log each request once it has ended, together with what the application put into `scope["state"]["log"]`.

    `quiet` names paths that are logged only when they fail (health checks, scrapes).
    """

    def __init__(self, app: ASGIApp, quiet: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._logger = structlog.get_logger()
        self._quiet = quiet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: dict[str, Any] = {}
        state = scope.setdefault("state", {})
        state["log"] = fields
        exchange = _Exchange(receive, send)
        started = time.perf_counter()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.status == CLIENT_GONE:
                exchange.status = 500
            fields["error"] = type(error).__name__
            raise
        finally:
            if exchange.status >= 400 or scope["path"] not in self._quiet:
                self._logger.info(
                    "request",
                    request_id=state.get("request_id"),
                    method=scope["method"],
                    path=routed_path(scope),
                    status=exchange.status,
                    complete=exchange.complete,
                    ms=round((time.perf_counter() - started) * 1000, 2),
                    bytes_in=exchange.bytes_in,
                    bytes_out=exchange.bytes_out,
                    **fields,
                )
