import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest
from starlette.types import Receive, Scope, Send

from transom.proxy.connection import LINGER_S, Bounds, Connection
from transom.proxy.drain import Drain
from transom.proxy.process import Listen, Server, configure

BOUNDS = Bounds(header_s=10, body_s=30, idle_s=75, header_bytes=4096, header_fields=50, connections=3)
GET = b"GET /a HTTP/1.1\r\nhost: h\r\n\r\n"


class Served:
    """A running server, the scopes its application saw, and the bodies it read."""

    def __init__(self, port: int, server: Server) -> None:
        self.port = port
        self.server = server
        self.scopes: list[Scope] = []
        self.bodies: list[bytes | None] = []
        self.released = asyncio.Event()

    @property
    def connections(self) -> list[Connection]:
        return [c for c in self.server.server_state.connections if isinstance(c, Connection)]

    def later(self, seconds: float) -> None:
        """Let the connections see a clock that is ahead by so many seconds."""
        now = asyncio.get_running_loop().time() + seconds
        for connection in self.connections:
            connection.sweep(now)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        own = writer.get_extra_info("sockname")
        await self.until(lambda: any(connection.client == own for connection in self.connections))
        return reader, writer

    async def talk(self, request: bytes) -> bytes:
        """Send bytes on a fresh connection and return all that comes until the server closes it."""
        reader, writer = await self.open()
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


@contextlib.asynccontextmanager
async def serving(bounds: Bounds = BOUNDS) -> AsyncIterator[Served]:
    """Serve an application whose path says what it does: /early, /wait, /flood; anything else reads and answers."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        running.scopes.append(scope)
        if scope["path"] == "/wait":
            await running.released.wait()
        if scope["path"] not in ("/early", "/flood"):
            body = b""
            while True:
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            running.bodies.append(body if message["type"] == "http.request" else None)
        size = 50_000_000 if scope["path"] == "/flood" else 2
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        for _ in range(size // 50_000):
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
        await send({"type": "http.response.body", "body": b"" if size > 2 else b"ok"})

    listen = Listen("127.0.0.1", 0, bounds)
    listen.open()
    server = Server(configure(app, bounds, lifespan=False), Drain(), 0, None, supervised=False)
    running = Served(listen.sockets[0].getsockname()[1], server)
    task = asyncio.create_task(server.serve(sockets=listen.sockets))
    await running.until(lambda: server.started)
    try:
        yield running
    finally:
        running.released.set()
        server.should_exit = server.force_exit = True
        await task
        listen.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as running:
        yield running


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"content-type: application/json" in head
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert isinstance(found, dict)
    return found


# Rule 1
@pytest.mark.parametrize("sent", [b"", b"GE", b"GET / HTTP/1.1\r\nhost: h\r\nx: y", b"\r\n"])
async def test_a_connection_without_a_whole_header_is_closed_in_time(served: Served, sent: bytes) -> None:
    reader, writer = await served.open()
    writer.write(sent)
    await asyncio.sleep(0.02)
    served.later(5)
    assert len(served.connections) == 1
    served.later(11)
    assert await reader.read() == b""
    assert served.scopes == []
    writer.close()


async def test_a_dripped_header_gains_no_time(served: Served) -> None:
    reader, writer = await served.open()
    for byte in b"GET / HTTP/1.1\r\n":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.001)
    served.later(10.5)
    assert await reader.read() == b""
    writer.close()


async def test_the_second_header_has_a_deadline_too(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(GET)
    await reader.readuntil(b"ok")
    writer.write(b"GET /b HTTP")
    await served.until(lambda: served.connections[0]._read_deadline)
    served.later(11)
    assert await reader.read() == b""
    writer.close()


# Rule 2
async def test_a_body_that_stops_is_cut_off_and_the_application_told(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nabc")
    await served.until(lambda: served.scopes)
    served.later(15)
    assert len(served.connections) == 1
    served.later(31)
    assert await reader.read() == b""
    await served.until(lambda: served.bodies)
    assert served.bodies == [None]
    writer.close()


async def test_a_body_that_comes_slowly_but_steadily_gets_more_time(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 655361\r\n\r\n" + b"x" * 655_360)
    loop = asyncio.get_running_loop()
    await served.until(lambda: served.scopes)
    await served.until(lambda: (served.connections[0]._read_deadline or 0) > loop.time() + 36)
    served.later(35)
    writer.write(b"x")
    assert status(await reader.readuntil(b"ok")) == 200
    writer.close()


async def test_a_body_that_we_do_not_read_is_not_the_clients_fault(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST /wait HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 999_999)
    await served.until(lambda: served.connections[0].flow.read_paused)
    served.later(40)
    served.released.set()
    writer.write(b"x")
    assert status(await reader.readuntil(b"ok")) == 200
    assert len(served.bodies[0] or b"") == 1_000_000
    writer.close()


async def test_a_request_that_is_complete_has_no_deadline_here(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"GET /wait HTTP/1.1\r\nhost: h\r\n\r\n")
    await served.until(lambda: served.scopes)
    served.later(100_000)
    served.released.set()
    assert status(await reader.readuntil(b"ok")) == 200
    writer.close()


# Rule 3
async def test_an_idle_connection_is_closed() -> None:
    async with serving(Bounds(header_s=10, body_s=30, idle_s=0.05)) as served:
        reader, writer = await served.open()
        writer.write(GET)
        assert (await reader.read()).endswith(b"ok")
        writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off(served: Served) -> None:
    _, writer = await served.open()
    writer.write(b"GET /flood HTTP/1.1\r\nhost: h\r\n\r\n")
    await served.until(lambda: served.connections[0].flow.write_paused)
    served.later(40)
    assert len(served.connections) == 1
    served.later(76)
    await served.until(lambda: not served.connections)
    writer.transport.abort()


async def test_a_reader_that_goes_on_gets_everything(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"GET /flood HTTP/1.1\r\nhost: h\r\n\r\n")
    await served.until(lambda: served.connections[0].flow.write_paused)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(50_000_000)
    served.later(74)
    assert status(head) == 200
    assert len(served.connections) == 1
    writer.close()


# Rule 4
@pytest.mark.parametrize(
    "request_head",
    [
        GET[:-2] + b"".join(b"x%d: y\r\n" % n for n in range(20_000)) + b"\r\n",
        GET[:-2] + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
        GET[:-2] + b"x: " + b"y" * 400_000,
        b"GET /" + b"a" * 8000 + b" HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /" + b"a" * 600_000,
    ],
    ids=["20,000 fields", "200 kB field", "endless field", "long path", "endless path"],
)
async def test_too_large_a_header_is_refused(served: Served, request_head: bytes) -> None:
    answer = await served.talk(request_head)
    assert status(answer) == 431
    assert error(answer)["message"] == "The request's header is too large."
    assert served.scopes == []


async def test_a_body_larger_than_the_header_bound_is_no_header(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000 + GET)
    await reader.readuntil(b"ok")
    await reader.readuntil(b"ok")
    assert [scope["path"] for scope in served.scopes] == ["/", "/a"]
    writer.close()


async def test_endless_trailers_and_chunk_extensions_are_refused(served: Served) -> None:
    chunked = b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    for endless in (b"0\r\nx: " + b"y" * 600_000, b"1;" + b"y" * 600_000):
        answer = await served.talk(chunked + endless)
        assert answer == b"" or status(answer) in (400, 431)
    await served.until(lambda: len(served.bodies) == 2)
    assert served.bodies == [None, None]


# Rule 5
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3, 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/9.9\r\nhost: a\r\n\r\n",
        b"GET http://h HTTP/1.1\r\nhost: h\r\n\r\n",
        b"CONNECT h:443 HTTP/1.1\r\nhost: h\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: h\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
    ],
)
async def test_what_is_ambiguous_or_no_http_is_refused(served: Served, request_bytes: bytes) -> None:
    answer = await served.talk(request_bytes)
    assert status(answer) == 400
    assert error(answer)["message"] == "The request is not valid HTTP."
    assert served.scopes == []


async def test_trailers_are_refused(served: Served) -> None:
    answer = await served.talk(
        b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nauthorization: y\r\n\r\n"
    )
    assert status(answer) == 400
    assert b"authorization" not in dict(served.scopes[0]["headers"])


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"//v1/models", "//v1/models"), (b"/v1/%2e%2e/admin", "/v1/../admin"), (b"http://other/v1/models", "/v1/models")],
)
async def test_odd_targets_reach_the_application_as_they_are_routed(served: Served, target: bytes, path: str) -> None:
    await served.talk(b"GET %b HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n" % target)
    assert [scope["path"] for scope in served.scopes] == [path]


async def test_junk_behind_a_running_request_ends_the_connection_without_an_answer(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"GET /flood HTTP/1.1\r\nhost: h\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x00junk\r\n\r\n")
    rest = await reader.read()
    assert status(head) == 200
    assert rest.strip(b"x") == b""
    writer.close()


# Rule 6
async def test_an_answer_before_the_body_reaches_the_client_that_goes_on_sending(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 5000000\r\n\r\n")
    for _ in range(49):
        writer.write(b"x" * 100_000)
        await writer.drain()
    assert status(await reader.readuntil(b"ok")) == 200
    served.later(LINGER_S + 1)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_ends_its_body_keeps_its_connection(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(b"POST /early HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n")
    await reader.readuntil(b"ok")
    writer.write(b"abc" + GET)
    await reader.readuntil(b"ok")
    served.later(LINGER_S + 1)
    assert len(served.connections) == 1
    writer.close()


# Rule 7
@pytest.mark.parametrize("pause", [False, True])
async def test_an_upgrade_is_ignored_and_the_body_read(served: Served, pause: bool) -> None:
    upgrade = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    body = b"GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
    reader, writer = await served.open()
    writer.write(b"POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n%b\r\n" % (len(body), upgrade))
    if pause:
        await asyncio.sleep(0.05)
    writer.write(body)
    await reader.readuntil(b"ok")
    writer.write(GET)
    await reader.readuntil(b"ok")
    assert served.bodies == [body, b""]
    assert [scope["path"] for scope in served.scopes] == ["/a", "/a"]
    assert b"upgrade" not in dict(served.scopes[0]["headers"])
    writer.close()


async def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    reader, writer = await served.open()
    writer.write(GET + GET.replace(b"/a", b"/b"))
    await reader.readuntil(b"ok")
    await reader.readuntil(b"ok")
    assert [scope["path"] for scope in served.scopes] == ["/a", "/b"]
    writer.close()


async def test_connections_beyond_the_bound_are_answered_503(served: Served) -> None:
    held = [await served.open() for _ in range(3)]
    answer = await served.talk(GET)
    assert status(answer) == 503
    assert b"retry-after: 1" in answer
    assert error(answer)["code"] == "overloaded"
    held[0][1].close()
    await served.until(lambda: len(served.connections) == 2)
    reader, writer = await served.open()
    writer.write(GET)
    assert status(await reader.readuntil(b"ok")) == 200
    for _, other in [*held, (reader, writer)]:
        other.close()
