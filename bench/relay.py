"""The bare minimum: Starlette and aiohttp hand bytes on and do nothing else. What Transom costs is told against it.

`python -m bench.relay UPSTREAM PORT` runs it on loopback with the server that Transom runs on: uvicorn, uvloop,
httptools, no access log.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


class Relay:
    """The application for one upstream, given by its base URL."""

    def __init__(self, upstream: str) -> None:
        self._url = upstream + "/chat/completions"
        self._session: aiohttp.ClientSession | None = None
        routes = [Route("/v1/chat/completions", self.chat, methods=["POST"]), Route("/healthz", self.alive)]
        self.app: Starlette = Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            yield

    async def alive(self, _request: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    async def chat(self, request: Request) -> Response:
        """Send the body on and the answer back, piece by piece if it is a stream."""
        assert self._session is not None
        headers = {"content-type": "application/json", "authorization": request.headers.get("authorization", "")}
        answer = await self._session.post(self._url, data=await request.body(), headers=headers)
        if not answer.content_type.startswith("text/event-stream"):
            async with answer:
                return Response(await answer.read(), answer.status, media_type=answer.content_type)
        return StreamingResponse(_pieces(answer), answer.status, media_type="text/event-stream")


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with answer:
        async for piece in answer.content.iter_any():
            yield piece


if __name__ == "__main__":
    uvicorn.run(
        Relay(sys.argv[1]).app,
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
