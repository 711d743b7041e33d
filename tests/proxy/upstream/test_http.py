"""The HTTP client below its sockets: answers cut into any pieces, what ends a connection, what keeps it."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from transom.proxy.errors import UpstreamBadResponse, UpstreamBroken, UpstreamUnreachable
from transom.proxy.upstream.http.connection import HttpConnection
from transom.proxy.upstream.http.decoding import Decoder, DecodingError
from transom.proxy.upstream.http.message import HttpRequest
from transom.proxy.upstream.http.names import Names
from transom.proxy.upstream.http.pool import Pool
from transom.proxy.upstream.http.reply import HttpReply, Waits

BASE = "http://localhost/v1"
ANSWERS = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\nX-A: 1\r\n\r\nhello world",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
    "announced": b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world",
    "unbounded": b"HTTP/1.1 200 OK\r\n\r\nhello world",
}


class Transport(asyncio.Transport):
    """Keep what is written; tell the protocol of its end at once."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__()
        self.connection = connection
        self.written = b""
        self.unsent = 0
        self.ended = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            self.connection.connection_lost(None)

    abort = close


class Line:
    """A connection with its transport, and whether it was given back."""

    def __init__(self) -> None:
        self.free = 0
        self.gone = 0
        self.connection = HttpConnection(request().origin, self._free, self._gone)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)

    def _free(self, _: HttpConnection) -> None:
        self.free += 1

    def _gone(self, _: HttpConnection) -> None:
        self.gone += 1

    def send(self, asked: HttpRequest | None = None) -> HttpReply:
        asked = asked or request()
        return self.connection.send(asked, asked.head(), Waits(60, 60, asyncio.get_running_loop().time() + 60))


def request(method: str = "POST", body: bytes = b"{}", **headers: str) -> HttpRequest:
    return HttpRequest(method, URL(BASE), list(headers.items()), body)


async def body_of(reply: HttpReply) -> bytes:
    failure = await reply.begun()
    if failure is not None:
        raise failure()
    return await reply.read(1 << 20)


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 100), max_size=20))
def test_an_answer_is_the_same_however_it_is_cut(kind: str, cuts: list[int]) -> None:
    async def scenario() -> None:
        line = Line()
        for turn in range(2):
            reply = line.send()
            rest = ANSWERS[kind]
            for cut in cuts:
                if rest[:cut]:
                    line.connection.data_received(rest[:cut])
                rest = rest[cut:]
            if rest:
                line.connection.data_received(rest)
            if kind == "unbounded":
                line.transport.close()
            assert await body_of(reply) == b"hello world"
            assert not {"content-length", "transfer-encoding", "link"} & reply.headers.keys()
            assert line.free == (0 if kind == "unbounded" else turn + 1)
            if kind == "unbounded":
                return

    asyncio.run(scenario())


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=10))
def test_whatever_comes_is_an_answer_or_an_error(junk: bytes, cuts: list[int]) -> None:
    async def scenario() -> None:
        line = Line()
        reply = line.send()
        rest = junk
        for cut in [*cuts, len(junk) + 1]:
            if rest[:cut] and not line.transport.ended:
                line.connection.data_received(rest[:cut])
            rest = rest[cut:]
        line.transport.close()
        with suppress(UpstreamBadResponse):  # which a broken answer is, too
            await body_of(reply)
        assert line.gone == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", b"?"])
async def test_what_nobody_asked_for_ends_the_connection_but_not_the_answer(surplus: bytes) -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(ANSWERS["length"] + surplus)

    assert await body_of(reply) == b"hello world"
    assert (line.free, line.gone) == (0, 1)


async def test_what_comes_while_nobody_asks_ends_the_connection() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(ANSWERS["length"])
    line.connection.data_received(ANSWERS["length"])

    assert await body_of(reply) == b"hello world"
    assert (line.free, line.gone) == (1, 1)


@pytest.mark.parametrize(("header", "unsent"), [(b"X-A: 1", 1), (b"connection: close", 0)])
async def test_the_last_answer_comes_before_the_request_is_out_or_says_so(header: bytes, unsent: int) -> None:
    line = Line()
    reply = line.send()
    line.transport.unsent = unsent
    line.connection.data_received(ANSWERS["length"].replace(b"X-A: 1", header))

    assert await body_of(reply) == b"hello world"
    assert (line.free, line.gone) == (0, 1)


async def test_the_answer_to_head_has_no_body() -> None:
    line = Line()
    reply = line.send(request("HEAD", b""))
    line.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n")

    assert await body_of(reply) == b""


async def test_an_answer_may_have_no_body() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")

    assert await body_of(reply) == b""
    assert line.free == 1


async def test_a_protocol_that_nobody_asked_for() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")

    with pytest.raises(UpstreamBadResponse):
        await body_of(reply)
    assert line.transport.ended


async def test_a_status_beyond_all_others_is_a_servers_fault() -> None:
    for status in (600, 999):
        line = Line()
        reply = line.send()
        line.connection.data_received(b"HTTP/1.1 %d Odd\r\ncontent-length: 2\r\n\r\n{}" % status)

        assert (await body_of(reply), reply.status) == (b"{}", 502)
        assert line.free == 1


async def test_a_status_below_all_others_is_no_answer() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 099 Odd\r\ncontent-length: 2\r\n\r\n{}")

    with pytest.raises(UpstreamBadResponse):
        await body_of(reply)
    assert line.transport.ended


async def test_a_head_without_end_is_no_answer() -> None:
    line = Line()
    reply = line.send()
    for _ in range(100):
        if not line.transport.ended:
            line.connection.data_received(b"HTTP/1.1 200 OK\r\nx: " if not reply.touched else b"x" * 1000)

    with pytest.raises(UpstreamBadResponse):
        await body_of(reply)


async def test_an_unknown_encoding_is_told() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(ANSWERS["length"].replace(b"X-A: 1", b"content-encoding: br"))

    with pytest.raises(UpstreamBroken) as caught:
        await body_of(reply)
    assert caught.value.kind == "encoding"
    assert line.free == 0


async def test_a_server_that_is_faster_than_the_reader_is_held_back() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert await reply.begun() is None
    line.connection.data_received(b"%x\r\n" % (1 << 20) + b"x" * (1 << 19))
    assert line.transport.paused

    assert await anext(reply.chunks()) == b"x" * (1 << 19)
    assert not line.transport.paused
    line.connection.data_received(b"x" * (1 << 19) + b"\r\n0\r\n\r\n")
    assert not line.transport.paused  # the next answer must come through
    assert line.free == 1
    assert len(await reply.read(1 << 20)) == 1 << 19


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\ncontent-length: 11\n\nhello world",
        b"HTTP/1.1 200\r\nContent-LENGTH: 11\r\n\r\nhello world",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb  \r\nhello world\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb;a=b\r\nhello world\r\n0\r\n\r\n",
    ],
    ids=["line feeds", "no reason", "spaces", "extension"],
)
async def test_what_honest_servers_send(answer: bytes) -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(answer)

    assert await body_of(reply) == b"hello world"
    assert line.free == 1


async def test_a_coding_that_is_none_lasts_until_the_end() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nhello world")
    line.transport.close()

    assert await body_of(reply) == b"hello world"


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 5\r\ncontent-length: 6",
        b"content-length: 5\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: 5",
        b"content-length: -5",
        b"content-length: 99999999999999999999",
        b"x: a\0b",
    ],
)
async def test_a_length_that_can_be_read_in_two_ways_is_no_answer(head: bytes) -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nhello")

    with pytest.raises(UpstreamBadResponse):
        await body_of(reply)
    assert (line.free, line.gone) == (0, 1)


async def test_headers_after_the_body_are_not_the_answers() -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(
        ANSWERS["chunked"][:-2].replace(b"\r\n\r\n", b"\r\nX-A: 1\r\n\r\n", 1)
        + b"x-a: 2\r\nx-b: 3\r\nconnection: close\r\n\r\n"
    )

    assert await body_of(reply) == b"hello world"
    assert reply.headers == {"x-a": "1"}


@pytest.mark.parametrize("begun", [b"0\r\nx: ", b"1;"], ids=["trailer", "extension"])
async def test_what_is_neither_head_nor_body_has_an_end(begun: bytes) -> None:
    line = Line()
    reply = line.send()
    line.connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + begun)
    for _ in range(100):
        if not line.transport.ended:
            line.connection.data_received(b"x" * 1000)

    with pytest.raises(UpstreamBroken):
        await body_of(reply)
    assert line.transport.ended


async def test_a_server_that_reads_no_more_holds_no_socket() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await asyncio.Event().wait()

    async with running(serve) as to:
        pool = Pool()
        asked = HttpRequest("POST", to, [], bytes(32 << 20))
        connection = await pool.connect(asked.origin, 60)
        assert await body_of(connection.send(asked, asked.head(), waits())) == b"no"
        async with asyncio.timeout(60):
            while pool._all:
                await asyncio.sleep(0.01)


async def test_an_answer_that_nobody_asked_for_reaches_no_other_request() -> None:
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while await reader.read(1000):
            writer.write(ANSWERS["length"])
        writer.close()

    async with running(serve) as to:
        pool = Pool()
        asked = HttpRequest("GET", to, [], b"")
        connection = await pool.connect(asked.origin, 60)
        assert await body_of(connection.send(asked, asked.head(), waits())) == b"hello world"
        writers[0].get_extra_info("socket")._sock.send(ANSWERS["length"])  # the loop has not seen it yet
        assert pool.take(asked.origin) is None
        pool.close()


async def test_a_closed_pool_connects_no_more() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    pool = Pool()
    async with running(serve) as to:
        origin = HttpRequest("GET", to, [], b"").origin
        under_way = asyncio.ensure_future(pool.connect(origin, 60))
        await asyncio.sleep(0)
        pool.close()
        for connecting in (under_way, pool.connect(origin, 60)):
            with pytest.raises(UpstreamUnreachable):
                await connecting
        assert not pool._all


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(1, 40), st.sampled_from([b"", b"\0" * 99]))
def test_members_are_one_body(parts: list[bytes], cut: int, padding: bytes) -> None:
    packed = b"".join(map(gzip.compress, parts)) + padding
    decoder = Decoder("gzip")
    found = b""
    for start in range(0, len(packed), cut):
        decoder.feed(packed[start : start + cut])
        while piece := decoder.take():
            found += piece
    decoder.end()
    assert found == b"".join(parts)


def test_a_body_without_a_byte_is_empty_in_any_encoding() -> None:
    decoder = Decoder("gzip")
    assert decoder.take() == b""
    decoder.end()
    decoder.feed(gzip.compress(b"x")[:-1])
    assert decoder.take() == b"x"
    with pytest.raises(DecodingError):
        decoder.end()


async def test_a_request_is_framed_by_its_length() -> None:
    line = Line()
    asked = request("POST", b"x" * 100_000, accept="*/*")
    line.send(asked)
    assert line.transport.written == (
        b"POST /v1 HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-length: 100000\r\n\r\n" + asked.body
    )
    assert b"content-length" not in request("GET", b"").head()
    assert b"content-length: 0" in request("POST", b"").head()


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\ny: z", "a\r", "a\0"])
def test_a_header_cannot_smuggle_another(value: str) -> None:
    with pytest.raises(UpstreamUnreachable):
        request(accept=value).head()


def test_headers_beyond_latin_1_go_out_as_utf_8() -> None:
    assert "é".encode("latin-1") in request(accept="é").head()
    assert "漢".encode() in request(accept="漢").head()


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://a", ("a", 80, None)),
        ("https://a:8443/v1", ("a", 8443, True)),
        ("http://[::1]:81", ("::1", 81, None)),
        ("http://bücher.example/", ("xn--bcher-kva.example", 80, None)),
    ],
)
def test_who_is_talked_to(address: str, origin: tuple[object, ...]) -> None:
    assert HttpRequest("GET", URL(address), [], b"").origin == origin


async def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def look_up(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        await asyncio.sleep(0.01)
        if host == "unknown":
            raise socket.gaierror
        return [host]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    names = Names()
    assert await asyncio.gather(*(names.find("a", 1) for _ in range(5))) == [["a"]] * 5
    assert await names.find("a", 1) == ["a"]
    assert asked == ["a"]
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await names.find("unknown", 1)
    assert asked == ["a", "unknown", "unknown"]


async def test_idle_connections_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(ANSWERS["length"])
        ended.set()
        writer.close()

    monkeypatch.setattr("transom.proxy.upstream.http.pool.KEEP_ALIVE_S", 0.05)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        to = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        asked = HttpRequest("GET", to, [], b"")
        pool = Pool()
        connection = await pool.connect(asked.origin, 60)
        assert await body_of(connection.send(asked, asked.head(), waits())) == b"hello world"
        await asyncio.wait_for(ended.wait(), 60)
        assert pool.take(asked.origin) is None
        pool.close()


def waits() -> Waits:
    return Waits(60, 60, asyncio.get_running_loop().time() + 60)


@asynccontextmanager
async def running(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[URL]:
    """Run a server for the time of a block; what it still does then is cancelled."""
    tasks: set[asyncio.Task[None]] = set()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(asyncio.CancelledError, ConnectionError):
            await serve(reader, writer)
        writer.transport.abort()

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        try:
            yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks)
