"""litellm's way to the network: the direct adapter's connections and deadlines, and a record in the current call."""

from collections.abc import AsyncIterator
from ssl import SSLContext

import httpx
from yarl import URL

from transom.proxy.errors import TransomError, UpstreamUnreachable
from transom.proxy.upstream.http.message import HttpRequest
from transom.proxy.upstream.http.reply import HttpReply
from transom.proxy.upstream.litellm.call import Call, Refusal, current

__all__ = ["Transport"]

REFUSAL_BYTES = 4 * 1024 * 1024
# Set anew for every request: by us, or for the one hop only (RFC 9110, 7.6.1).
NOT_SENT = frozenset({"accept-encoding", "connection", "content-length", "host", "keep-alive", "transfer-encoding"})


class Transport(httpx.AsyncBaseTransport):
    """Send litellm's requests through the direct adapter, on behalf of the current call; outside a call, none.

    Args:
        tls: as in `HttpRequest`.
    """

    def __init__(self, tls: SSLContext | bool = True) -> None:
        self._tls = tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer with its body still to come; a refusal is read whole.

        Raises TransomError as `DirectUpstream.send` does; the call remembers it.
        """
        call = current.get()
        if call is None:
            raise UpstreamUnreachable("litellm tried to reach a server outside a call.")
        body = await request.aread()
        headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in NOT_SENT]
        headers.append(("accept-encoding", "identity"))
        call.begin()
        url = URL(str(request.url), encoded=True)  # its bytes may be signed
        try:
            reply = await call.carrier.fetch(HttpRequest(request.method, url, headers, body, self._tls))
            call.replies.append(reply)
            headers_back = call.headers = reply.headers
            if reply.status >= 400:
                refused = await reply.read(REFUSAL_BYTES)
                call.refusal = Refusal(reply.status, headers_back, refused)
                return _kept(call, httpx.Response(reply.status, headers=headers_back, content=refused, request=request))
        except TransomError as error:
            call.failure = error
            raise
        call.answered = True
        answer = httpx.Response(reply.status, headers=headers_back, stream=_Body(call, reply), request=request)
        return _kept(call, answer)

    async def aclose(self) -> None:
        """Do nothing: the connections are the direct adapter's, and litellm closes clients that others still use."""


def _kept(call: Call, answer: httpx.Response) -> httpx.Response:
    call.answers.append(answer)
    return answer


class _Body(httpx.AsyncByteStream):
    """The body of an answer on its way to litellm."""

    def __init__(self, call: Call, reply: HttpReply) -> None:
        self._call, self._reply = call, reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._reply.chunks():
                self._call.saw(piece)
                yield piece
        except TransomError as error:
            self._call.failure = error
            raise

    async def aclose(self) -> None:
        await self._reply.close()
