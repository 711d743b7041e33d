"""One connection to a server: a request at a time, and its answer parsed as it comes (RFC 9112).

1. Whatever the parser does not accept, and a head without end, is no answer.
2. An answer without a length ends with the connection; any other that does is broken.
3. The connection is kept if the answer came whole, the server lets us, and nothing unasked followed.
"""

import asyncio
import select
from collections.abc import Callable
from functools import partial
from typing import cast

import httptools

from transom.proxy.errors import TransomError, UpstreamBadResponse, UpstreamBroken
from transom.proxy.upstream.http.message import HttpRequest, Origin
from transom.proxy.upstream.http.reply import HttpReply, Waits

__all__ = ["HttpConnection"]

# Of an answer's head: far beyond what honest servers send, and little beside a body.
HEAD_BYTES = 64 * 1024
HEAD_LINES = 200
# Below this a copy costs less than another write.
COPIED_BYTES = 64 * 1024
CONTINUE, SWITCHING_PROTOCOLS, OK, BAD_GATEWAY, LAST = 100, 101, 200, 502, 599


def _not_http() -> TransomError:
    return UpstreamBadResponse("The answer of the model's server is not valid HTTP, or its headers are too large.")


_reset = partial(UpstreamBroken, "reset")


class HttpConnection(asyncio.Protocol):
    """Be one connection.

    Args:
        origin: whom it leads to.
        free: called when it may be used again.
        gone: called when it is no more.

    Attributes:
        open: whether a request can be sent.
        idle_since: the loop's time at which it came free.
    """

    def __init__(
        self,
        origin: Origin,
        free: "Callable[[HttpConnection], None]",
        gone: "Callable[[HttpConnection], None]",
    ) -> None:
        self.origin = origin
        self.open = False
        self.idle_since = 0.0
        self._free, self._gone = free, gone
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reply: HttpReply | None = None
        self._arrivals: select.poll | None = None
        self._headless = False  # the answer to HEAD has headers only
        self._unbounded = False  # the answer lasts until the connection ends
        self._paused = False
        self._clear()

    def _clear(self) -> None:
        """Expect the head of an answer."""
        self._headers: dict[str, str] = {}
        self._lines = self._line_bytes = 0
        self._head_bytes = 0  # since the last piece of a body: of a head, of chunks' sizes, of trailers
        self._head_done = self._complete = self._keep = self._surplus = False

    def send(self, request: HttpRequest, head: bytes, waits: Waits) -> HttpReply:
        """Send a request; return its answer, still to come."""
        transport = self._transport
        assert transport is not None
        self._clear()
        self._headless, self._unbounded = request.method == "HEAD", False
        reply = self._reply = HttpReply(self, waits)
        if len(request.body) <= COPIED_BYTES:
            transport.write(head + request.body)
        else:
            transport.write(head)
            transport.write(request.body)
        return reply

    def quiet(self) -> bool:
        """Tell whether nothing has come that the loop has not seen yet: the end, or an answer nobody asked for."""
        return self._arrivals is None or not self._arrivals.poll(0)

    # ------------------------------------------------------------------ Carrier
    def pause(self) -> None:
        """Take no more bytes from the server."""
        if self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Take them again."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """End the connection at once; no more is told to the answer."""
        self.open = False
        self._reply = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection, and with it whatever is under way."""
        self._fail(_reset)

    # ------------------------------------------------------------------ asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are so without saying it
        opened = transport.get_extra_info("socket")
        if opened is not None:
            self._arrivals = select.poll()
            self._arrivals.register(opened.fileno(), select.POLLIN)
        self._parser = httptools.HttpResponseParser(self)
        # What RFC 9112 lets a recipient accept (2.2), and a fault of known servers; neither makes a length ambiguous.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Parse what came; what nobody asked for ends the connection."""
        reply, parser = self._reply, self._parser
        if reply is None or parser is None:
            self.abort()
            return
        reply.touched = True
        self._head_bytes += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._surplus = True
            if not self._complete:
                self._fail(_reset if self._head_done else _not_http)
                return
        if self._complete:
            self._finish(reply)
        elif self._head_bytes > HEAD_BYTES:
            self._fail(_reset if self._head_done else _not_http)
        else:
            reply.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: for an answer without a length this is its end, for any other it comes too early."""
        self.open = False
        reply, self._reply = self._reply, None
        self._transport = self._parser = None
        if reply is not None:
            if self._unbounded and exc is None:
                reply.end()
            else:
                reply.fail(_reset)
        self._gone(self)

    # ------------------------------------------------------------------ the parser's events
    def on_message_begin(self) -> None:
        """Notice an answer that nobody asked for."""
        self._surplus = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those after the body are no part of the head (RFC 9110, 6.5.1)."""
        self._lines += 1
        self._line_bytes += len(name) + len(value)
        if self._lines > HEAD_LINES or self._line_bytes > HEAD_BYTES:
            raise ValueError  # the parser stops
        if not self._head_done:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Take the head, unless it only announces another (RFC 9110, 15.2)."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == SWITCHING_PROTOCOLS or status < CONTINUE:
            raise ValueError  # nobody asked for another; there is none below
        if status > LAST:
            status = BAD_GATEWAY  # to be read as a server's fault (RFC 9110, 15)
        if status < OK:
            return
        reply = self._reply
        if reply is not None and not self._surplus:
            self._head_done = True
            self._head_bytes = 0
            coding = self._headers.get("transfer-encoding", "identity").strip().lower()
            self._unbounded = "content-length" not in self._headers and coding == "identity"
            reply.begin(status, self._headers)
            if self._headless:
                self._complete = True  # what the parser now takes for the body is not there; not kept, so harmless

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._head_bytes = 0
        if self._reply is not None and not self._complete:
            self._reply.feed(piece)

    def on_message_complete(self) -> None:
        """Take note of the end, or forget what only announced an answer."""
        if not self._head_done:
            self._clear()
            return
        assert self._parser is not None
        self._keep = not self._complete and self._parser.should_keep_alive()
        self._complete = True

    # ------------------------------------------------------------------ ends
    def _finish(self, reply: HttpReply) -> None:
        self._reply = None
        transport = self._transport
        keep = self._keep and not self._surplus and transport is not None and not transport.is_closing()
        # An answer may come before the request has gone out whole: then nobody knows what the server still reads.
        if keep and transport is not None and not transport.get_write_buffer_size():
            self.resume()
            self._free(self)
        else:
            self.open = False
            if transport is not None and transport.get_write_buffer_size():
                transport.abort()  # to close would wait until the server has read what it no longer needs
            elif transport is not None:
                transport.close()
        reply.end()

    def _fail(self, failure: "Callable[[], TransomError]") -> None:
        reply = self._reply
        self.abort()
        if reply is not None:
            reply.fail(failure)
