"""The client that loads a server: one HTTP session, answers timed and read as an application reads them."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urljoin

import aiohttp
import msgspec

from bench.upstream import Pace, Seen

TIMEOUT_S = 120.0
KEY = "sk-bench"
TOKEN = re.compile(rb'"content": ?"[^"]')


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]


read_completion = msgspec.json.Decoder(_Completion).decode


class Failed(Exception):
    """A request was not answered as it should be."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request was answered; `first_ms` is when the first token of a stream came."""

    ms: float
    first_ms: float | None
    text: str


class Client:
    """Asks one server."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http = url + "/chat/completions", http

    async def ask(self, body: bytes, session: str) -> Answer:
        """Send one request and read the answer. Raises Failed."""
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-session-id": session}
        began = time.perf_counter()
        try:
            async with self._http.post(self._url, data=body, headers=headers) as response:
                if response.status != 200:
                    raise Failed(f"{response.status} {(await response.text())[:200]}")
                if response.content_type == "text/event-stream":
                    return await _streamed(response, began)
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Failed(f"{type(error).__name__} {error}") from None
        took = (time.perf_counter() - began) * 1000
        return Answer(took, None, read_completion(content).choices[0].message.content or "")


async def _streamed(response: aiohttp.ClientResponse, began: float) -> Answer:
    first, last = None, b""
    async for piece in response.content.iter_any():
        if first is None and TOKEN.search(piece):
            first = (time.perf_counter() - began) * 1000
        last = piece
    if b"[DONE]" not in last:
        raise Failed(f"the stream ended with {last[-100:]!r}")
    return Answer((time.perf_counter() - began) * 1000, first, "")


class Upstream:
    """The made-up model server, from the side of the bench."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self._http = url, http

    async def set(self, pace: Pace) -> None:
        """Say how long its answers take from now on."""
        async with self._http.put(urljoin(self.url, "/pace"), data=msgspec.json.encode(pace)) as response:
            response.raise_for_status()

    async def seen(self) -> Seen:
        """Return what it was sent since the last time it was asked."""
        async with self._http.get(urljoin(self.url, "/seen")) as response:
            return msgspec.json.decode(await response.read(), type=Seen)


@asynccontextmanager
async def http_session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session without a bound on its connections, and wait until they are closed."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        yield session
    await asyncio.sleep(0)
