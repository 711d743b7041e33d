"""The direct adapter against servers that misbehave; numbers are those of the faults to survive."""

import asyncio
import errno
import gc
import gzip
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest

from tests.proxy.upstream.misbehaving import (
    JSON_HEAD,
    KEY,
    SSE_HEAD,
    Call,
    answering,
    chunk,
    hanging,
    model,
    served,
    whole,
)
from transom.proxy.config.settings import Model
from transom.proxy.errors import (
    BadRequest,
    Overloaded,
    TransomError,
    UpstreamBadResponse,
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from transom.proxy.upstream.base import Deadlines, UpstreamRequest
from transom.proxy.upstream.direct import DirectUpstream
from transom.proxy.upstream.http import pool
from transom.proxy.upstream.http.reply import HttpReply

LIMIT = 1 << 20
EVENT = b'data: {"choices":[]}\n\n'
SHORT = 0.15  # to be waited for
LONGER = 0.8  # in which an answer begins on a busy machine too
PATIENT = Deadlines(connect_s=60, first_byte_s=60, idle_stream_s=60, total_s=60)


class Tidy(DirectUpstream):
    """Close every reply that a test leaves open."""

    def __init__(self, deadlines: Deadlines) -> None:
        super().__init__(deadlines)
        self.replies: list[HttpReply] = []

    async def send(self, request: UpstreamRequest) -> HttpReply:
        reply = await super().send(request)
        self.replies.append(reply)
        return reply

    async def aclose(self) -> None:
        for reply in self.replies:
            await reply.close()
        await super().aclose()


@asynccontextmanager
async def upstream(deadlines: Deadlines = PATIENT) -> AsyncIterator[DirectUpstream]:
    direct = Tidy(deadlines)
    try:
        yield direct
    finally:
        await direct.aclose()


def request(to: Model, **fields: object) -> UpstreamRequest:
    return UpstreamRequest(to, b'{"messages":[]}', **fields)  # type: ignore[arg-type]


async def drained(reply: HttpReply) -> bytes:
    return b"".join([piece async for piece in reply.chunks()])


async def error_of(direct: DirectUpstream, to: Model) -> TransomError:
    """Return what a call that must fail raises, after checking that it gives nothing away."""
    with pytest.raises(TransomError) as caught:
        await direct.send(request(to))
    error = caught.value
    assert KEY not in error.message
    assert "127.0.0.1" not in error.message
    assert ".invalid" not in error.message
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


async def failing(reply: HttpReply) -> tuple[bytes, TransomError]:
    """Return what came of a body that must break off, and how it broke."""
    came = b""
    try:
        async for piece in reply.chunks():
            came += piece
    except TransomError as error:
        return came, error
    raise AssertionError("the body came to its end")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


async def test_an_answer_comes_back_as_it_is() -> None:
    body = b'{"choices": [ ]}\n'
    async with served(answering(whole(body, headers=b"X-RateLimit-Limit: 9\r\n"))) as server, upstream() as direct:
        reply = await direct.send(request(server.model))

        assert (reply.status, await reply.read(LIMIT)) == (200, body)
        assert reply.headers == {"x-ratelimit-limit": "9"}
        call = server.calls[0]
        assert call.line == "POST /v1/chat/completions HTTP/1.1"
        assert call.body == b'{"messages":[]}'
        assert call.headers["authorization"] == f"Bearer {KEY}"


async def test_only_the_given_headers_go_up() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        to = model(server.port, extra_headers={"x-team": "a"})
        await direct.send(request(to, headers=[("x-title", "t"), ("user-agent", "u")], bearer="client-key"))

        headers = server.calls[0].headers
        del headers["host"]
        assert headers == {
            "x-title": "t",
            "user-agent": "u",
            "x-team": "a",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "content-length": "15",
            "authorization": "Bearer client-key",
        }


async def test_without_any_key_no_authorization_is_sent() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        await direct.send(request(model(server.port, api_key=None)))

        assert "authorization" not in server.calls[0].headers


async def test_path_query_and_method_are_the_callers() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        await direct.send(UpstreamRequest(server.model, b"", path="files/a%20b?limit=2", method="GET"))

        assert server.calls[0].line == "GET /v1/files/a%20b?limit=2 HTTP/1.1"


async def test_a_login_in_the_address_is_sent_where_there_is_no_key() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        for key in (None, KEY):
            await first(direct, model(server.port, host="us%40er:pass@127.0.0.1", api_key=key))

        assert [call.headers["authorization"] for call in server.calls] == ["Basic dXNAZXI6cGFzcw==", f"Bearer {KEY}"]


@pytest.mark.parametrize("path", ["../admin", "files/%2E%2e/x", "a/./b", "a\\..\\b"])
async def test_a_path_cannot_leave_the_api(path: str) -> None:
    async with upstream() as direct:
        with pytest.raises(BadRequest):
            await direct.send(request(model(1), path=path))


async def test_connections_and_cookies() -> None:
    async with served(answering(whole(b"{}", headers=b"set-cookie: a=1; Path=/\r\n"))) as server, upstream() as direct:
        for _ in range(3):
            reply = await direct.send(request(server.model))
            await reply.read(LIMIT)
            await reply.close()

        assert server.connections == 1
        assert all("cookie" not in call.headers for call in server.calls)


async def test_a_body_over_a_megabyte_goes_up_whole() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        body = bytes(range(256)) * 12_000
        await direct.send(UpstreamRequest(server.model, body))

        assert server.calls[0].body == body
        assert "transfer-encoding" not in server.calls[0].headers


async def test_u1_refused() -> None:
    async with upstream() as direct:
        assert isinstance(await error_of(direct, model(free_port())), UpstreamUnreachable)


async def test_u2_unknown_name() -> None:
    async with upstream() as direct:
        error = await error_of(direct, model(80, host="nonexistent.invalid"))

        assert isinstance(error, UpstreamUnreachable)
        assert "resolved" in error.message


async def test_u3_no_tls_where_it_was_due() -> None:
    def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server, upstream() as direct:
        error = await error_of(direct, model(server.sockets[0].getsockname()[1], scheme="https"))

        assert isinstance(error, UpstreamUnreachable)
        assert "TLS" in error.message


async def test_u4_hangs_before_headers() -> None:
    async with served(hanging) as server, upstream(Deadlines(first_byte_s=SHORT)) as direct:
        assert isinstance(await error_of(direct, server.model), UpstreamTimeout)
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_u4_hangs_within_headers() -> None:
    async with served(answering(JSON_HEAD)) as server, upstream(Deadlines(first_byte_s=SHORT)) as direct:
        assert isinstance(await error_of(direct, server.model), UpstreamTimeout)


async def test_new_deadlines_hold_for_the_next_call() -> None:
    async with served(hanging) as server, upstream() as direct:
        direct.limit(Deadlines(first_byte_s=SHORT))

        assert isinstance(await error_of(direct, server.model), UpstreamTimeout)


async def stale(call: Call) -> None:
    """End the first connection at its second request."""
    if call.connection == 1 and call.body != b"first":
        call.writer.close()
    else:
        await call.send(whole(b"{}"))


async def first(direct: DirectUpstream, to: Model) -> None:
    reply = await direct.send(UpstreamRequest(to, b"first"))
    await reply.read(LIMIT)
    await reply.close()


async def test_u5_a_stale_connection_is_replaced_once() -> None:
    async with served(stale) as server, upstream() as direct:
        await first(direct, server.model)
        reply = await direct.send(request(server.model))

        assert await reply.read(LIMIT) == b"{}"
        assert [call.connection for call in server.calls] == [1, 1, 2]
        assert server.calls[1].body == server.calls[2].body


async def test_u5_a_reset_of_a_stale_connection_counts_too() -> None:
    async def answer(call: Call) -> None:
        if call.connection == 1 and call.body != b"first":
            call.reset()
        else:
            await call.send(whole(b"{}"))

    async with served(answer) as server, upstream() as direct:
        await first(direct, server.model)

        assert (await direct.send(request(server.model))).status == 200
        assert server.connections == 2


async def test_u5_the_second_try_takes_no_other_kept_connection() -> None:
    both = asyncio.Barrier(2)

    async def answer(call: Call) -> None:
        if call.body == b"first":
            await both.wait()
            await call.send(whole(b"{}"))
        elif call.connection <= 2:
            call.writer.close()
        else:
            await call.send(whole(b"{}"))

    async with served(answer) as server, upstream() as direct:
        await asyncio.gather(first(direct, server.model), first(direct, server.model))
        assert server.connections == 2

        assert (await direct.send(request(server.model))).status == 200


async def test_u5_not_more_than_once() -> None:
    async def answer(call: Call) -> None:
        if call.body == b"first":
            await call.send(whole(b"{}"))
        else:
            call.writer.close()

    async with served(answer) as server, upstream() as direct:
        await first(direct, server.model)

        assert isinstance(await error_of(direct, server.model), UpstreamBroken)
        assert len(server.calls) == 3


async def test_u5_a_fresh_connection_is_not_retried() -> None:
    async with served(answering(close=True)) as server, upstream() as direct:
        error = await error_of(direct, server.model)

        assert isinstance(error, UpstreamBroken)
        assert error.headers == {"x-should-retry": "false"}
        assert len(server.calls) == 1


async def test_u5_an_answer_that_had_begun_is_not_asked_for_again() -> None:
    async def answer(call: Call) -> None:
        await call.send(whole(b"{}") if call.body == b"first" else JSON_HEAD)
        if call.body != b"first":
            call.writer.close()

    async with served(answer) as server, upstream() as direct:
        await first(direct, server.model)

        assert isinstance(await error_of(direct, server.model), UpstreamBroken)
        assert len(server.calls) == 2


async def test_u6_hangs_mid_stream() -> None:
    async with (
        served(answering(SSE_HEAD, chunk(EVENT))) as server,
        upstream(Deadlines(idle_stream_s=SHORT)) as direct,
    ):
        came, error = await failing(await direct.send(request(server.model)))

        assert came == EVENT
        assert isinstance(error, UpstreamTimeout)
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_u6_hangs_within_a_json_answer() -> None:
    head = JSON_HEAD + b"content-length: 100\r\n\r\n{"
    async with served(answering(head)) as server, upstream(Deadlines(idle_stream_s=SHORT)) as direct:
        reply = await direct.send(request(server.model))

        with pytest.raises(UpstreamTimeout):
            await reply.read(LIMIT)


async def test_u6_a_slow_reader_is_not_the_servers_fault() -> None:
    async with (
        served(answering(SSE_HEAD, chunk(EVENT), chunk(EVENT), chunk(b""))) as server,
        upstream(Deadlines(idle_stream_s=SHORT)) as direct,
    ):
        reply = await direct.send(request(server.model))
        await asyncio.sleep(2 * SHORT)

        assert await drained(reply) == EVENT * 2


async def drip(call: Call) -> None:
    await call.send(SSE_HEAD)
    while True:
        await call.send(chunk(b": wait\n\n"))
        await asyncio.sleep(0.01)


async def test_u7_dripped_comments_end_with_the_total() -> None:
    async with served(drip) as server, upstream(Deadlines(total_s=LONGER)) as direct:
        came, error = await failing(await direct.send(request(server.model)))

        assert came.startswith(b": wait\n\n")
        assert isinstance(error, UpstreamTimeout)


async def test_u15_an_endless_stream_ends_with_the_total() -> None:
    async def endless(call: Call) -> None:
        await call.send(SSE_HEAD)
        while True:
            await call.send(chunk(EVENT * 100))

    async with served(endless) as server, upstream(Deadlines(total_s=LONGER)) as direct:
        _, error = await failing(await direct.send(request(server.model)))

        assert isinstance(error, UpstreamTimeout)


async def test_the_total_holds_while_nobody_reads() -> None:
    async with served(drip) as server, upstream(Deadlines(total_s=LONGER)) as direct:
        reply = await direct.send(request(server.model))
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)
        _, error = await failing(reply)

        assert isinstance(error, UpstreamTimeout)


@pytest.mark.parametrize("abort", [True, False], ids=["reset", "closed"])
async def test_u8_dies_mid_stream(abort: bool) -> None:
    async def answer(call: Call) -> None:
        await call.send(SSE_HEAD, chunk(EVENT))
        await asyncio.sleep(0.02)
        call.reset() if abort else call.writer.close()

    async with served(answer) as server, upstream() as direct:
        came, error = await failing(await direct.send(request(server.model)))

        assert came == EVENT
        assert isinstance(error, UpstreamBroken)
        assert error.kind == "reset"


async def test_u8_dies_within_a_json_answer() -> None:
    head = JSON_HEAD + b"content-length: 100\r\n\r\n{"
    async with served(answering(head, close=True)) as server, upstream() as direct:
        reply = await direct.send(request(server.model))

        with pytest.raises(UpstreamBroken):
            await reply.read(LIMIT)


async def test_u9_a_stream_that_ends_with_its_connection_ends() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with served(answering(head, EVENT, close=True)) as server, upstream() as direct:
        assert await drained(await direct.send(request(server.model))) == EVENT


async def test_u13_one_byte_at_a_time() -> None:
    async def answer(call: Call) -> None:
        await call.send(SSE_HEAD, *(chunk(bytes([byte])) for byte in EVENT), chunk(b""))

    async with served(answer) as server, upstream() as direct:
        assert await drained(await direct.send(request(server.model))) == EVENT


async def test_u14_a_chunk_of_20_mb_comes_in_pieces() -> None:
    size = 20 * 1024 * 1024
    async with served(answering(SSE_HEAD, chunk(b"x" * size), chunk(b""))) as server, upstream() as direct:
        sizes = [len(piece) async for piece in (await direct.send(request(server.model))).chunks()]

        assert sum(sizes) == size
        assert max(sizes) <= 2 * 1024 * 1024


async def test_u14_a_json_answer_is_read_up_to_its_bound() -> None:
    async with served(answering(whole(b"x" * 1000))) as server, upstream() as direct:
        assert len(await (await direct.send(request(server.model))).read(1000)) == 1000

        with pytest.raises(UpstreamBroken) as caught:
            await (await direct.send(request(server.model))).read(999)
        assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    "headers",
    [b"x-a: " + b"a" * 100_000, b"\r\n".join(b"x-%d: a" % at for at in range(5_000)), b"x" * 100_000],
    ids=["long", "many", "nameless"],
)
async def test_u16_giant_headers(headers: bytes) -> None:
    async with (
        served(answering(JSON_HEAD + headers + b"\r\ncontent-length: 2\r\n\r\n{}")) as server,
        upstream() as direct,
    ):
        assert type(await error_of(direct, server.model)) is UpstreamBadResponse


@pytest.mark.parametrize(
    "junk", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x15\x03\x01\x00\x02\x02\x16", b"HTTP/1.1 abc OK\r\n\r\n"]
)
async def test_what_is_not_http(junk: bytes) -> None:
    async with served(answering(junk, close=True)) as server, upstream() as direct:
        assert isinstance(await error_of(direct, server.model), UpstreamBadResponse)


@pytest.mark.parametrize(
    "status", [b"400 Bad", b"401 No", b"403 No", b"404 No", b"429 Wait", b"500 Oh", b"503 Oh", b"599 Oh"]
)
async def test_u21_to_u24_errors_are_answers(status: bytes) -> None:
    async with served(answering(whole(b"why", status=status))) as server, upstream() as direct:
        reply = await direct.send(request(server.model))

        assert (reply.status, await reply.read(LIMIT)) == (int(status[:3]), b"why")


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"304 Same", b"307 There", b"308 There"])
async def test_u25_redirects_are_not_followed(status: bytes) -> None:
    elsewhere = whole(b"", status=status, headers=b"location: /elsewhere\r\n")
    async with served(answering(elsewhere)) as server, upstream() as direct:
        error = await error_of(direct, server.model)

        assert isinstance(error, UpstreamBadResponse)
        assert "redirect" in error.message
        assert len(server.calls) == 1


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [(b"gzip", gzip.compress(EVENT)), (b"deflate", zlib.compress(EVENT)), (b"deflate", raw_deflate(EVENT))],
    ids=["gzip", "deflate", "raw deflate"],
)
async def test_what_comes_encoded_is_decoded(encoding: bytes, packed: bytes) -> None:
    answer = whole(packed, headers=b"content-encoding: %b\r\n" % encoding)
    async with served(answering(answer)) as server, upstream() as direct:
        reply = await direct.send(request(server.model))

        assert reply.headers == {}
        assert await reply.read(LIMIT) == EVENT


async def test_a_packed_stream_is_decoded_as_it_comes() -> None:
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(EVENT) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(3)]
    head = SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    async with served(answering(head, chunk(pieces[0]), chunk(pieces[1]))) as server, upstream() as direct:
        chunks = (await direct.send(request(server.model))).chunks()
        came = b""
        while len(came) < 2 * len(EVENT):
            came += await asyncio.wait_for(anext(chunks), 60)

        assert came == EVENT * 2


async def test_a_bomb_is_stopped_at_the_bound() -> None:
    packed = gzip.compress(b"\0" * 50_000_000)
    async with served(answering(whole(packed, headers=b"content-encoding: gzip\r\n"))) as server, upstream() as direct:
        with pytest.raises(UpstreamBroken) as caught:
            await (await direct.send(request(server.model))).read(LIMIT)

        assert caught.value.kind == "too_large"


async def test_what_is_not_in_its_encoding() -> None:
    answer = whole(b"not packed", headers=b"content-encoding: gzip\r\n")
    async with served(answering(answer)) as server, upstream() as direct:
        with pytest.raises(UpstreamBroken) as caught:
            await (await direct.send(request(server.model))).read(LIMIT)

        assert caught.value.kind == "encoding"


async def test_closing_early_ends_the_upstream_call() -> None:
    async with served(drip) as server, upstream() as direct:
        reply = await direct.send(request(server.model))
        await anext(reply.chunks())
        await reply.close()
        await reply.close()

        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_a_caller_that_leaves_before_headers_ends_the_upstream_call() -> None:
    async with served(hanging) as server, upstream() as direct:
        task = asyncio.ensure_future(direct.send(request(server.model)))
        await server.called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_a_cancelled_wait_loses_nothing() -> None:
    go = asyncio.Event()

    async def answer(call: Call) -> None:
        await call.send(SSE_HEAD, chunk(b"a"))
        await go.wait()
        await call.send(chunk(b"b"), chunk(b""))

    async with served(answer) as server, upstream() as direct:
        chunks = (await direct.send(request(server.model))).chunks()
        assert await anext(chunks) == b"a"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(chunks), 0.02)
        go.set()

        assert [piece async for piece in chunks] == [b"b"]


async def test_informational_answers_are_skipped() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with served(answering(early, whole(b"{}"))) as server, upstream() as direct:
        reply = await direct.send(request(server.model))

        assert (reply.status, await reply.read(LIMIT)) == (200, b"{}")


async def test_no_descriptor_left_is_the_proxys_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with upstream() as direct:
        monkeypatch.setattr(pool, "start_connection", none_left)

        assert isinstance(await error_of(direct, model(1)), Overloaded)


async def test_a_header_that_cannot_be_sent() -> None:
    async with served(answering(whole(b"{}"))) as server, upstream() as direct:
        error = await error_of(direct, model(server.port, api_key=f"{KEY}\r\nx-evil: 1"))

        assert isinstance(error, UpstreamUnreachable)
        assert not server.calls


async def test_closing_the_upstream_is_safe_at_any_time() -> None:
    await DirectUpstream(PATIENT).aclose()
    direct = DirectUpstream(PATIENT)
    async with served(answering(whole(b"{}"))) as server:
        await first(direct, server.model)
        await direct.aclose()
        await direct.aclose()


async def test_a_call_that_closing_ends_is_not_made_again() -> None:
    under_way = asyncio.Event()

    async def answer(call: Call) -> None:
        if len(server.calls) > 1:
            under_way.set()
            await hanging(call)
        await call.send(whole(b"{}"))

    async with served(answer) as server, upstream() as direct:
        await first(direct, server.model)
        call = asyncio.ensure_future(direct.send(request(server.model)))
        await asyncio.wait_for(under_way.wait(), 60)
        await direct.aclose()
        with pytest.raises(UpstreamUnreachable):
            await call
        assert (server.connections, len(server.calls)) == (1, 2)


async def leftovers() -> int:
    """Count the answers that nothing but a cycle keeps alive."""
    await asyncio.sleep(0.05)
    return sum(isinstance(thing, HttpReply) for thing in gc.get_objects())


@pytest.mark.parametrize("how", ["read", "left", "broken", "late", "cancelled"])
async def test_an_answer_leaves_no_cycle(how: str) -> None:
    parts = {"read": (whole(b"{}"),), "left": (SSE_HEAD, chunk(EVENT)), "broken": (SSE_HEAD, b"zz")}.get(how, ())
    gc.collect()
    gc.disable()
    try:
        async with served(answering(*parts)) as server:
            direct = DirectUpstream(Deadlines(first_byte_s=SHORT if how == "late" else 60))
            before = await leftovers()
            for _ in range(3):
                with suppress(TransomError, TimeoutError):
                    async with asyncio.timeout(SHORT if how == "cancelled" else 60):
                        reply = await direct.send(request(server.model))
                        await (reply.close() if how == "left" else reply.read(LIMIT))
            reply = None  # type: ignore[assignment]
            assert await leftovers() == before
            await direct.aclose()
    finally:
        gc.enable()
