"""The adapter for OpenAI-compatible HTTP endpoints: pooled connections, deadlines, bytes relayed as they are.

It knows HTTP and nothing of chat: bodies are opaque in both directions.

1. A call ends by its deadlines, whatever the server does; waiting for a slow client is not the server's fault.
2. A kept-alive connection that dies before a byte of the answer was stale: the call is repeated once, on a fresh one.
   Nothing else is repeated, since it may have been done, and paid.
3. Redirects are not followed: they would carry the key elsewhere.
4. Identity encoding is asked for; what comes encoded anyway is decoded.
5. What is raised names neither address nor key, and carries no exception of the network, which would.
"""

import asyncio
from base64 import b64encode
from functools import lru_cache

from yarl import URL

from transom.proxy.errors import BadRequest, UpstreamBadResponse, UpstreamBroken, UpstreamUnreachable
from transom.proxy.upstream.base import Deadlines, UpstreamRequest
from transom.proxy.upstream.http.connection import HttpConnection
from transom.proxy.upstream.http.message import HttpRequest
from transom.proxy.upstream.http.pool import Pool
from transom.proxy.upstream.http.reply import HttpReply, Waits

__all__ = ["DirectUpstream"]

DEFAULT_BASE = "https://api.openai.com/v1"
NO_ADDRESS = "The model's api_base is not a valid address."
REDIRECT = "The model's server answered with a redirect, which is not followed; check the model's api_base."


@lru_cache(maxsize=512)
def _url(base: str, path: str) -> URL:
    segments = path.partition("?")[0].lower().replace("%2e", ".").replace("\\", "/").split("/")
    if ".." in segments or "." in segments:
        raise BadRequest("The path must not contain dot segments.")
    return URL(f"{base.rstrip('/')}/{path}")


class DirectUpstream:
    """Call OpenAI-compatible endpoints through one pool; an `Upstream`.

    Args:
        deadlines: for every call, until `limit` replaces them.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self._pool = Pool()

    def limit(self, deadlines: Deadlines) -> None:
        """Replace the deadlines, for the calls that start from now on."""
        self.deadlines = deadlines

    async def send(self, request: UpstreamRequest) -> HttpReply:
        """Return the answer once its headers have come; see `Upstream.send` for what it raises."""
        try:
            url = _url(request.model.api_base or DEFAULT_BASE, request.path)
        except ValueError:
            url = None
        if url is None:
            raise UpstreamUnreachable(NO_ADDRESS)
        return await self.fetch(HttpRequest(request.method, url, _headers(request, url), request.body))

    async def fetch(self, request: HttpRequest) -> HttpReply:
        """Do as `send`, for a request that is complete in itself."""
        call = _Call(request, self.deadlines)
        kept = self._pool.take(request.origin)
        reply = await call.on(kept) if kept is not None else None
        if reply is None:
            reply = await call.on(await self._pool.connect(request.origin, call.connect_s()))
            if reply is None:
                raise UpstreamBroken("reset")
        if 300 <= reply.status < 400:
            await reply.close()
            raise UpstreamBadResponse(REDIRECT)
        return reply

    async def aclose(self) -> None:
        """Close the pool; calls in flight are cancelled."""
        self._pool.close()


class _Call:
    """A request and how long it may take, on whatever connection it goes."""

    def __init__(self, request: HttpRequest, deadlines: Deadlines) -> None:
        self._request, self._deadlines = request, deadlines
        self._head = request.head()
        self._started = asyncio.get_running_loop().time()

    def connect_s(self) -> float:
        """Return how long a connection may take from now on, in seconds."""
        deadlines = self._deadlines
        return min(deadlines.connect_s, self._left(deadlines.first_byte_s), self._left(deadlines.total_s))

    async def on(self, connection: HttpConnection) -> HttpReply | None:
        """Return the answer with its head read; None if the connection died before a byte of it."""
        deadlines = self._deadlines
        waits = Waits(self._left(deadlines.first_byte_s), deadlines.idle_stream_s, self._started + deadlines.total_s)
        reply = connection.send(self._request, self._head, waits)
        failure = await reply.begun()
        if failure is None:
            return reply
        if not reply.touched and isinstance(failure(), UpstreamBroken):
            return None
        raise failure()

    def _left(self, seconds: float) -> float:
        return self._started + seconds - asyncio.get_running_loop().time()


def _headers(request: UpstreamRequest, url: URL) -> list[tuple[str, str]]:
    """Return the headers of a call: the client's, and in their place the model's own."""
    model = request.model
    own = {name.lower(): value for name, value in model.extra_headers.items()}
    own["accept-encoding"] = "identity"
    key = model.api_key if request.bearer is None else request.bearer
    if key is not None:
        own["authorization"] = f"Bearer {key}"
    elif url.user is not None and "authorization" not in own:
        own["authorization"] = _login(url.user, url.password or "")
    headers = [header for header in request.headers if header[0] not in own]
    if "content-type" not in own and not any(name == "content-type" for name, _ in headers):
        own["content-type"] = "application/json"
    return [*headers, *own.items()]


def _login(user: str, password: str) -> str:
    """Return what an address like https://user:password@host stands for (RFC 7617)."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
