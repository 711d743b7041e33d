"""The adapter for OpenAI-compatible HTTP endpoints: pooled connections, deadlines, bytes relayed as they are.

It knows HTTP and nothing of chat: bodies are opaque in both directions.

1. A call ends by its deadlines, whatever the server does; waiting for a slow client is not the server's fault.
2. A kept-alive connection that dies before a byte of the answer was stale: the call is repeated once, on a fresh one.
   Nothing else is repeated, since it may have been done, and paid.
3. Redirects are not followed: they would carry the key elsewhere.
4. Identity encoding is asked for; what comes encoded anyway is decoded.
5. What is raised names neither address nor key, and carries no exception of the HTTP client, which would.
"""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ssl import SSLContext

import aiohttp
import structlog
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from transom.proxy.errors import (
    BadRequest,
    TransomError,
    UpstreamBadResponse,
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from transom.proxy.upstream.base import Deadlines, UpstreamRequest
from transom.proxy.upstream.failures import failure, let_go, unreachable

__all__ = ["DirectReply", "DirectUpstream", "HttpRequest"]

DEFAULT_BASE = "https://api.openai.com/v1"
AUTO_HEADERS = ("accept", "accept-encoding", "content-type", "user-agent")
TRANSFER_HEADERS = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
# One response header line, and their number: 3 MB in the worst case.
HEADER_LINE_BYTES = 16 * 1024
HEADER_LINES = 200
# aiohttp holds larger bodies to be a mistake unless they come as a file.
PLAIN_BODY_BYTES = 1024 * 1024
# Below the 60 to 75 s after which common servers and balancers close; most stale connections are so avoided.
KEEP_ALIVE_S = 50
READ_BUFFER_BYTES = 256 * 1024
log = structlog.get_logger("transom.upstream")

ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)


class _Attempt:
    """Remember whether a call had to open a connection."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        self.opened = False


_attempt: ContextVar[_Attempt] = ContextVar("attempt")


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Open a socket for the pool, and note it; tasks that race for addresses share the attempt of their call."""
    _attempt.get().opened = True
    return socket.socket(address[0], address[1], address[2])


@lru_cache(maxsize=512)
def _url(base: str, path: str) -> URL:
    segments = path.partition("?")[0].lower().replace("%2e", ".").replace("\\", "/").split("/")
    if ".." in segments or "." in segments:
        raise BadRequest("The path must not contain dot segments.")
    return URL(f"{base.rstrip('/')}/{path}")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request as it goes out; `tls` is how a server proves who it is: the system's way, a context, or not."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes
    tls: SSLContext | bool = True


class DirectUpstream:
    """Call OpenAI-compatible endpoints through one pool; an `Upstream`.

    Args:
        deadlines: for every call, until `limit` replaces them.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self.limit(deadlines)
        self._pool: aiohttp.ClientSession | None = None
        self._unpooled: aiohttp.ClientSession | None = None

    def limit(self, deadlines: Deadlines) -> None:
        """Replace the deadlines, for the calls that start from now on."""
        self.deadlines = deadlines
        self._timeout = aiohttp.ClientTimeout(total=None, connect=deadlines.connect_s)

    async def send(self, request: UpstreamRequest) -> "DirectReply":
        """Return the answer once its headers have come; see `Upstream.send` for what it raises."""
        try:
            url = _url(request.model.api_base or DEFAULT_BASE, request.path)
        except ValueError:
            url = None
        if url is None:
            raise UpstreamUnreachable("The model's api_base is not a valid address.")
        return await self.fetch(HttpRequest(request.method, url, _headers(request), request.body))

    async def fetch(self, request: HttpRequest) -> "DirectReply":
        """Do as `send`, for a request that is complete in itself."""
        deadlines = self.deadlines
        until = asyncio.get_running_loop().time() + deadlines.total_s
        error: Exception
        try:
            async with asyncio.timeout(min(deadlines.first_byte_s, deadlines.total_s)):
                response = await self._answer(request)
        except TimeoutError:
            error = UpstreamTimeout()
        except TransomError as raised:
            error = raised
        else:
            if 200 <= response.status < 300 or response.status >= 400:
                return DirectReply(response, deadlines.idle_stream_s, until)
            response.close()
            error = UpstreamBadResponse(
                "The model's server answered with a redirect, which is not followed; check the model's api_base."
            )
        try:
            raise error
        finally:
            del error  # or the error's trace would hold this frame, the request in it, and the error itself

    async def aclose(self) -> None:
        """Close the pool; calls in flight are cancelled."""
        sessions = [session for session in (self._pool, self._unpooled) if session is not None]
        self._pool = self._unpooled = None
        for session in sessions:
            await session.close()

    async def _answer(self, request: HttpRequest) -> aiohttp.ClientResponse:
        """Return the response to the call, made again if its connection turns out to be stale."""
        if self._pool is None:
            self._pool = self._session(pooled=True)
        attempt = _Attempt()
        _attempt.set(attempt)
        try:
            return await self._call(self._pool, request)
        except ERRORS as raised:
            error = _failed(raised, request.url)
            let_go(raised)
            # A disconnection's message holds the beginning of an answer, if there was one.
            began = isinstance(raised, aiohttp.ServerDisconnectedError) and not isinstance(raised.message, str)
        if attempt.opened or began or not isinstance(error, UpstreamBroken):
            try:
                raise error
            finally:
                del error
        if self._unpooled is None:
            self._unpooled = self._session(pooled=False)
        try:
            return await self._call(self._unpooled, request)
        except ERRORS as raised:
            error = _failed(raised, request.url)
            let_go(raised)
        try:
            raise error
        finally:
            del error

    async def _call(self, session: aiohttp.ClientSession, request: HttpRequest) -> aiohttp.ClientResponse:
        body = request.body
        return await session.request(
            request.method,
            request.url,
            data=body if len(body) <= PLAIN_BODY_BYTES else io.BytesIO(body),
            headers=request.headers,
            timeout=self._timeout,
            allow_redirects=False,
            ssl=request.tls,
        )

    def _session(self, *, pooled: bool) -> aiohttp.ClientSession:
        keep_s = KEEP_ALIVE_S if pooled else None
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=keep_s, force_close=not pooled, socket_factory=_open_socket
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=AUTO_HEADERS,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=HEADER_LINE_BYTES,
            max_field_size=HEADER_LINE_BYTES,
            max_headers=HEADER_LINES,
        )


def _failed(raised: Exception, url: URL) -> TransomError:
    """Return what an exception amounts to; where no connection came about, tell the operator which and why."""
    reason = unreachable(raised)
    if reason is not None:
        log.warning("upstream unreachable", host=f"{url.host}:{url.port}", reason=reason)
    return failure(raised)


def _headers(request: UpstreamRequest) -> CIMultiDict[str]:
    model = request.model
    headers = CIMultiDict(request.headers)
    headers.update(model.extra_headers)
    headers["accept-encoding"] = "identity"
    headers.setdefault("content-type", "application/json")
    key = model.api_key if request.bearer is None else request.bearer
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


class DirectReply:
    """Be one answer of an HTTP server; an `UpstreamReply`.

    Args:
        response: with its headers read.
        idle_s: how long the server may be waited for, again and again.
        until: the loop's time at which the whole must have ended.
    """

    __slots__ = (
        "_content",
        "_expired",
        "_idle_s",
        "_loop",
        "_response",
        "_timer",
        "_until",
        "_waiting_since",
        "status",
    )

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float, until: float) -> None:
        self.status = response.status
        self._response = response
        self._content = response.content
        self._loop = asyncio.get_running_loop()
        self._idle_s = idle_s
        self._until = until
        self._expired = False
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Most JSON answers come whole with their headers and need no watching.
        if not self._content.is_eof():
            self._watch()

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers in lower case; of repeated ones the last, and none that described the transfer."""
        headers = self._response.headers
        return {low: value for name, value in headers.items() if (low := name.lower()) not in TRANSFER_HEADERS}

    async def read(self, limit: int) -> bytes:
        """Return the whole body, of at most `limit` bytes; see `UpstreamReply.read` for what it raises."""
        pieces = []
        size = 0
        async for piece in self:
            size += len(piece)
            if size > limit:
                await self.close()
                raise UpstreamBroken("too_large", "The model's server gave an answer that is too large.")
            pieces.append(piece)
            if self._content.at_eof():
                break
        await self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body as they come; see `UpstreamReply.chunks` for what they raise."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself: the pieces can be had once only."""
        return self

    async def __anext__(self) -> bytes:
        """Wait for the next piece."""
        self._waiting_since = self._loop.time()
        error: TransomError | None = None
        try:
            piece = await self._content.readany()
        except ERRORS as raised:
            error = failure(raised)
            let_go(raised)
        finally:
            self._waiting_since = None
        if self._expired:
            error = UpstreamTimeout()
        if error is not None:
            await self.close()
            try:
                raise error
            finally:
                del error
        if not piece:
            await self.close()
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """End the call; the connection is kept if the answer was read to its end, else closed at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._response.close()

    def _watch(self) -> None:
        """Close the response if a deadline has passed, else look again when the next one is due.

        One timer a call that is moved when it rings, instead of one for each piece.
        """
        now = self._loop.time()
        waiting_since = now if self._waiting_since is None else self._waiting_since
        due = min(waiting_since + self._idle_s, self._until)
        if now < due:
            self._timer = self._loop.call_at(due, self._watch)
            return
        self._timer = None
        self._expired = True
        self._response.close()
