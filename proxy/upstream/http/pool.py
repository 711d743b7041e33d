"""Connections to servers: made, kept while they are idle, and closed; it does not know what they carry."""

import asyncio
import socket
import ssl
from functools import lru_cache

import structlog
from aiohappyeyeballs import start_connection

from transom.proxy.errors import Overloaded, TransomError, UpstreamTimeout
from transom.proxy.upstream.failures import let_go, meaning
from transom.proxy.upstream.http.connection import HttpConnection
from transom.proxy.upstream.http.message import Origin
from transom.proxy.upstream.http.names import Names

__all__ = ["Pool"]

# Below the 60 to 75 s after which common servers and balancers close; most stale connections are so avoided.
KEEP_ALIVE_S = 50.0
NEXT_ADDRESS_S = 0.25  # RFC 8305, 5
# A model may think for minutes while nothing is sent; routers forget a connection, and servers vanish, without a word.
PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 5}
TOO_LATE = "no connection within the deadline"
log = structlog.get_logger("transom.upstream")


@lru_cache(maxsize=2)
def _context(verify: bool) -> ssl.SSLContext:
    """Return the system's way of checking certificates, or none; reading the system's list takes tens of ms."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


class Pool:
    """Hold the connections of one event loop; idle ones are given out newest first, which lets the others expire."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[HttpConnection]] = {}
        self._all: set[HttpConnection] = set()
        self._names = Names()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, origin: Origin) -> HttpConnection | None:
        """Return an idle connection, if there is one that is not about to be closed by its server."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            fresh = asyncio.get_running_loop().time() - connection.idle_since < KEEP_ALIVE_S
            if fresh and connection.open and connection.quiet():
                return connection
            connection.abort()
        return None

    async def connect(self, origin: Origin, within_s: float) -> HttpConnection:
        """Return a new connection.

        Raises:
            UpstreamUnreachable: none came about.
            UpstreamTimeout: none came about in time (seconds).
            Overloaded: this process has no descriptor left.
        """
        error: TransomError
        try:
            async with asyncio.timeout(within_s):
                return await self._connect(origin)
        except TimeoutError:
            error, reason = UpstreamTimeout(), TOO_LATE
        except (OSError, ValueError) as raised:
            error, reason = meaning(raised)
            let_go(raised)
        if not isinstance(error, Overloaded):
            log.warning("upstream unreachable", host=f"{origin.host}:{origin.port}", reason=reason)
        try:
            raise error
        finally:
            del error  # or the error's trace would hold this frame, the request in it, and the error itself

    async def _connect(self, origin: Origin) -> HttpConnection:
        if self._closed:
            raise ConnectionAbortedError
        loop = asyncio.get_running_loop()
        addresses = await self._names.find(origin.host, origin.port)
        opened = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, loop=loop)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in PROBES.items():
                if (option := getattr(socket, name, None)) is not None:
                    opened.setsockopt(socket.IPPROTO_TCP, option, value)
            tls = origin.tls
            context = await asyncio.to_thread(_context, tls) if isinstance(tls, bool) else tls
            _, connection = await loop.create_connection(
                lambda: HttpConnection(origin, self._keep, self._all.discard),
                sock=opened,
                ssl=context,
                server_hostname=origin.host.rstrip(".") if context is not None else None,
            )
        except BaseException:
            opened.close()
            raise
        if self._closed:
            connection.abort()
            raise ConnectionAbortedError
        self._all.add(connection)
        return connection

    def close(self) -> None:
        """Close every connection, for good; calls in flight are cancelled."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for connection in list(self._all):
            connection.close()

    def _keep(self, connection: HttpConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._expire)

    def _expire(self) -> None:
        """Let go of what has ended or been idle for too long, and look again as long as anything is idle."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for origin, idle in list(self._idle.items()):
            still = [c for c in idle if c.open and loop.time() - c.idle_since < KEEP_ALIVE_S]
            for connection in set(idle).difference(still):
                connection.close()
            if still:
                self._idle[origin] = still
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep = loop.call_later(KEEP_ALIVE_S / 2, self._expire)
