"""A server on loopback that answers what a test tells it to, byte for byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from transom.proxy.config.settings import Model

KEY = "upstream-key-0123456789abcdef"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def whole(body: bytes, *, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """Return a response with a length."""
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def chunk(piece: bytes) -> bytes:
    """Return one piece in chunked encoding; the empty one is the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def model(port: int, *, scheme: str = "http", host: str = "127.0.0.1", **fields: object) -> Model:
    """Return a model that lives at a port."""
    settings: dict[str, object] = {"api_base": f"{scheme}://{host}:{port}/v1", "api_key": KEY, **fields}
    return Model(name="m", provider="direct", upstream_model="m", **settings)  # type: ignore[arg-type]


class Reader(asyncio.StreamReader):
    """Tell when the other side has gone, whether anybody reads or not."""

    def __init__(self) -> None:
        super().__init__(limit=2**26)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


class Call:
    """One request as it came, and the connection to answer it on."""

    def __init__(self, head: bytes, body: bytes, connection: int, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.line, *lines = head.decode("latin-1").split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body
        self.connection = connection
        self.writer = writer
        self.gone = reader.gone

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    def reset(self) -> None:
        self.writer.transport.abort()


class Server:
    """Count connections, keep the calls."""

    def __init__(self, answer: Callable[[Call], Awaitable[None]]) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.connections = 0
        self.port = 0
        self.called = asyncio.Event()

    @property
    def model(self) -> Model:
        return model(self.port)

    async def serve(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                self.called.set()
                length = next(
                    (line[16:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")), b"0"
                )
                call = Call(head, await reader.readexactly(int(length)), connection, reader, writer)
                self.calls.append(call)
                await self.answer(call)
                if writer.is_closing():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(answer: Callable[[Call], Awaitable[None]]) -> AsyncIterator[Server]:
    """Run a server for the time of a block."""
    server = Server(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept() -> asyncio.StreamReaderProtocol:
        reader = Reader()

        def begin(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.ensure_future(server.serve(reader, writer)))

        return asyncio.StreamReaderProtocol(reader, begin)

    listener = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*parts: bytes, close: bool = False) -> Callable[[Call], Awaitable[None]]:
    """Return an answer that writes parts, then keeps the connection or closes it."""

    async def answer(call: Call) -> None:
        await call.send(*parts)
        if close:
            call.writer.close()

    return answer


async def hanging(call: Call) -> None:
    """Never answer."""
    await asyncio.Event().wait()
