"""Bounds how many requests, and bytes of their bodies, are in flight; does not know how a refusal is worded."""

from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Reason = Literal["draining", "overloaded"]
Refuse = Callable[[Scope, Receive, Send, Reason], Awaitable[None]]


class InFlight:
    """The requests inside the application right now, their body bytes, and the bounds of both.

    While `draining()` is true every further request is refused. The bounds may be changed at any time (a reload).
    """

    __slots__ = ("_draining", "bytes", "max_bytes", "max_requests", "requests")

    def __init__(self, max_requests: int, max_bytes: int, draining: Callable[[], bool] = lambda: False) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.requests = 0
        self.bytes = 0
        self._draining = draining

    def refusal(self) -> Reason | None:
        """Return why the next request cannot be taken, or None if it can."""
        if self._draining():
            return "draining"
        if self.requests >= self.max_requests or self.bytes >= self.max_bytes:
            return "overloaded"
        return None


class Limits:
    """Count the requests under `prefix` into `in_flight` and hand those over its bounds to `refuse`.

    A body is counted as it arrives, whatever its declared length, and released when its request ends, in any outcome.
    When one crosses the bound midway, the application is told that its client is gone and the client is refused.
    """

    def __init__(self, app: ASGIApp, in_flight: InFlight, refuse: Refuse, prefix: str = "/v1/") -> None:
        self._app = app
        self._in_flight = in_flight
        self._refuse = refuse
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._prefix):
            await self._app(scope, receive, send)
            return
        reason = self._in_flight.refusal()
        if reason is not None:
            await self._refuse(scope, receive, send, reason)
            return
        request = _Counted(self._in_flight, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
            if request.crossed and not request.answered:
                await self._refuse(scope, receive, send, "overloaded")
        finally:
            request.release()


class _Counted:
    """One request's share of what is in flight."""

    __slots__ = ("_bytes", "_in_flight", "_receive", "_send", "answered", "crossed")

    def __init__(self, in_flight: InFlight, receive: Receive, send: Send) -> None:
        self._in_flight = in_flight
        self._receive = receive
        self._send = send
        self._bytes = 0
        self.answered = False
        self.crossed = False
        in_flight.requests += 1

    async def receive(self) -> Message:
        if self.crossed:
            return {"type": "http.disconnect"}
        message = await self._receive()
        size = len(message.get("body", b""))
        if size:
            self._bytes += size
            self._in_flight.bytes += size
            # The only request in flight is always let through: its body has a bound of its own.
            if self._in_flight.bytes > self._in_flight.max_bytes and self._in_flight.requests > 1:
                self.crossed = True
                return {"type": "http.disconnect"}
        return message

    def send(self, message: Message) -> Awaitable[None]:
        self.answered = True
        return self._send(message)

    def release(self) -> None:
        self._in_flight.requests -= 1
        self._in_flight.bytes -= self._bytes
