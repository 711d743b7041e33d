"""One client connection below ASGI: uvicorn's HTTP protocol with the deadlines and bounds it does not have itself.

Knows nothing of routes, bodies' content or the application; what it refuses never reaches the application.

Rules (RFC 9112 unless said otherwise):
 1. A connection that sends nothing, or a header that does not end, is closed after `header_s`.
 2. A body that does not end is closed after `body_s` and a second more for each 64 kB that came, so that a slow line
    can send a long body and a drip cannot hold a connection; not while it is us who do not read.
 3. A kept connection without a request is closed after `idle_s`; so is one whose reader takes nothing for as long.
 4. More header fields or bytes than the bounds allow: 431, then closed. The same bound holds for anything else that is
    neither header nor body, such as the inside of an unfinished line.
 5. Conflicting lengths, several or no Host, trailers, and whatever the parser does not accept: 400, then closed.
 6. What is still coming after an answer or a refusal is read and thrown away for a short while, so that the client
    can see it, then the connection is closed.
 7. An offer to upgrade the protocol is ignored (Java's client makes one with its first request): the parser takes what
    follows for another protocol, so the request is read again without the offer. CONNECT: 400.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import httptools
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

LINGER_S = 2.0
_BODY_BYTES_PER_S = 65_536
_ERROR = b'{"error":{"message":"%b","type":"%b","param":null,"code":%b}}'
_UPGRADE = (b"connection", b"upgrade", b"http2-settings")
_BAD = (b"400 Bad Request", b"The request is not valid HTTP.")
_TOO_LARGE = (b"431 Request Header Fields Too Large", b"The request's header is too large.")
_OVERLOADED = _ERROR % (b"Too many connections; try again shortly.", b"server_error", b'"overloaded"')


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one connection may take: seconds, header bytes and header fields; and how many connections there may be."""

    header_s: float
    body_s: float
    idle_s: float
    header_bytes: int = 65_536
    header_fields: int = 200
    connections: int = 10_000


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration with the bounds of its connections beside it."""

    bounds: Bounds


class Connection(HttpToolsProtocol):
    """A connection that keeps the rules above. `sweep` must be called several times a second."""

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = config.bounds
        self.timeout_keep_alive = config.bounds.idle_s  # type: ignore[assignment]  # any number of seconds does
        self._read_deadline: float | None = None
        self._write_deadline: float | None = None
        self._progress = False
        self._fed = b""
        self._fruitless_bytes = 0
        self._header_bytes = 0
        self._receiving = False
        self._refusal = _BAD
        self._refused = False

    def sweep(self, now: float) -> None:
        """Close the connection if a deadline has passed at `now`, in the loop's seconds."""
        if self._write_deadline is not None and now > self._write_deadline:
            self.transport.abort()
        elif self._read_deadline is not None and now > self._read_deadline:
            if self.flow.read_paused:
                self._read_deadline = now + self._bounds.body_s
            else:
                self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._read_deadline = self.loop.time() + self._bounds.header_s
        if len(self.connections) > self._bounds.connections:
            self.app = refuse_overloaded

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._read_deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._read_deadline = self.loop.time() + self._bounds.header_s
        self._progress = False
        self._fed = data
        super().data_received(data)
        self._fed = b""
        self._fruitless_bytes = 0 if self._progress else self._fruitless_bytes + len(data)
        if self._fruitless_bytes > self._bounds.header_bytes:
            self._refusal = _TOO_LARGE
            self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._progress = True
        self._header_bytes = 0
        self._receiving = False
        if self._read_deadline is None:
            self._read_deadline = self.loop.time() + self._bounds.header_s

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._receiving:
            raise ValueError("trailer")
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self._bounds.header_bytes or len(self.headers) >= self._bounds.header_fields:
            self._refusal = _TOO_LARGE
            raise ValueError("header too large")

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            raise ValueError("host")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("connect")
            return
        super().on_headers_complete()
        self._progress = True
        self._receiving = True
        self._read_deadline = self.loop.time() + self._bounds.body_s

    def on_body(self, body: bytes) -> None:
        self._progress = True
        if self._read_deadline is not None and not self.cycle.response_complete:
            self._read_deadline += len(body) / _BODY_BYTES_PER_S
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._progress = True
        self._read_deadline = None
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        raised = sys.exception()
        rest = self._fed[raised.args[0] :] if isinstance(raised, httptools.HttpParserUpgrade) else b""
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in _UPGRADE:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        super().data_received(b"".join([*head, b"\r\n", rest]))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
            self._read_deadline = self.loop.time() + LINGER_S

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.time() + self._bounds.idle_s

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline = None

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed; in the middle of another answer there is nothing left to say but goodbye."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        status, message = self._refusal
        body = _ERROR % (message, b"invalid_request_error", b"null")
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + head + body)
        # Closing with unread bytes would reset the connection and take the answer with it (RFC 9112, 9.6).
        self.transport.write_eof()
        self._refused = True
        self._read_deadline = self.loop.time() + LINGER_S
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


async def refuse_overloaded(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer 503 and close: the application of connections beyond the bound."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(_OVERLOADED)),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _OVERLOADED})
