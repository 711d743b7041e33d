"""The adapter against servers that misbehave, and against requests that would steer it."""

import asyncio
import gc
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.proxy.upstream.misbehaving import (
    KEY,
    SSE_HEAD,
    Call,
    Server,
    answering,
    chunk,
    hanging,
    served,
    whole,
)
from transom.proxy.config.settings import Model
from transom.proxy.errors import (
    BadRequest,
    TransomError,
    UpstreamBadResponse,
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from transom.proxy.upstream.base import Deadlines, UpstreamRequest
from transom.proxy.upstream.direct import DirectUpstream
from transom.proxy.upstream.litellm import LitellmUpstream
from transom.proxy.upstream.litellm.arguments import OPENAI, READ_HERE
from transom.proxy.upstream.litellm.library import CALLBACKS, SWITCHES, load
from transom.proxy.upstream.litellm.upstream import NotChat

pytestmark = pytest.mark.filterwarnings("ignore")

PATIENT = Deadlines(connect_s=60, first_byte_s=60, idle_stream_s=60, total_s=60)
SHORT = 0.2
HELLO = b'{"model":"m","messages":[{"role":"user","content":"Hello."}]}'
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
}
CHUNK = COMPLETION | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
EVENT = b"data: " + json.dumps(CHUNK).encode() + b"\n\n"


@asynccontextmanager
async def upstream(deadlines: Deadlines = PATIENT) -> AsyncIterator[LitellmUpstream]:
    direct = DirectUpstream(deadlines)
    try:
        adapter = LitellmUpstream(direct)
        adapter.prepare()
        yield adapter
    finally:
        await direct.aclose()


def model(port: int, **fields: Any) -> Model:
    settings = {"api_base": f"http://127.0.0.1:{port}/v1", "api_key": KEY, "label": "m", **fields}
    return Model(name="m", provider="litellm", upstream_model="hosted_vllm/m", **settings)


def to(server: Server, *, stream: bool = False, body: bytes = HELLO) -> UpstreamRequest:
    return UpstreamRequest(model(server.port), body, stream=stream)


async def error_of(adapter: LitellmUpstream, request: UpstreamRequest) -> TransomError:
    """Return what a call raises, at once or while its answer is read, after checking that it gives nothing away."""
    with pytest.raises(TransomError) as caught:
        await (await adapter.send(request)).read(1 << 20)
    assert KEY not in caught.value.message
    assert "127.0.0.1" not in caught.value.message
    return caught.value


async def test_a_whole_answer() -> None:
    async with served(answering(whole(json.dumps(COMPLETION).encode()))) as server, upstream() as adapter:
        reply = await adapter.send(to(server))
        answer = json.loads(await reply.read(1 << 20))
        await reply.close()
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert answer["choices"][0]["message"]["content"] == "Hi"
        (call,) = server.calls
        assert call.headers["authorization"] == f"Bearer {KEY}"
        assert call.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_hangs(stream: bool) -> None:
    async with served(hanging) as server, upstream(replace(PATIENT, first_byte_s=SHORT)) as adapter:
        assert isinstance(await error_of(adapter, to(server, stream=stream)), UpstreamTimeout)
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_a_server_that_hangs_in_the_middle() -> None:
    async def begin(call: Call) -> None:
        await call.send(SSE_HEAD, chunk(EVENT))
        await asyncio.Event().wait()

    async with served(begin) as server, upstream(replace(PATIENT, idle_stream_s=SHORT)) as adapter:
        assert isinstance(await error_of(adapter, to(server, stream=True)), UpstreamTimeout)
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)


async def test_a_server_that_never_ends() -> None:
    async def drip(call: Call) -> None:
        await call.send(SSE_HEAD)
        while True:
            await call.send(chunk(EVENT))
            await asyncio.sleep(0.02)

    async with served(drip) as server, upstream(replace(PATIENT, total_s=1)) as adapter:
        assert isinstance(await error_of(adapter, to(server, stream=True)), UpstreamTimeout)


async def test_a_server_that_cannot_be_reached() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    async with upstream() as adapter:
        refused = await error_of(adapter, UpstreamRequest(model(port), HELLO))
        unknown = await error_of(adapter, UpstreamRequest(model(1, api_base="http://nowhere.invalid/v1"), HELLO))
    assert isinstance(refused, UpstreamUnreachable)
    assert isinstance(unknown, UpstreamUnreachable)


async def test_a_connection_that_breaks() -> None:
    async def reset(call: Call) -> None:
        await call.send(SSE_HEAD, chunk(EVENT))
        call.reset()

    async with served(reset) as server, upstream() as adapter:
        assert isinstance(await error_of(adapter, to(server, stream=True)), UpstreamBroken)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_is_not_followed(stream: bool) -> None:
    async with served(answering(whole(b"", status=b"307 Go", headers=b"location: http://127.0.0.1:1/\r\n"))) as server:
        async with upstream() as adapter:
            assert isinstance(await error_of(adapter, to(server, stream=stream)), UpstreamBadResponse)
        assert len(server.calls) == 1


async def test_an_answer_that_is_too_large() -> None:
    async with served(answering(whole(json.dumps(COMPLETION).encode()))) as server, upstream() as adapter:
        reply = await adapter.send(to(server))
        with pytest.raises(UpstreamBroken):
            await reply.read(10)


async def test_nothing_is_tried_twice() -> None:
    async with served(answering(whole(b'{"error":{"message":"busy"}}', status=b"503 Busy"))) as server:
        async with upstream() as adapter:
            reply = await adapter.send(to(server))
            assert reply.status == 503
            await reply.close()
        assert len(server.calls) == 1


async def test_closing_an_answer_ends_the_call() -> None:
    async def begin(call: Call) -> None:
        await call.send(SSE_HEAD, chunk(EVENT))
        await asyncio.Event().wait()

    async with served(begin) as server, upstream() as adapter:
        reply = await adapter.send(to(server, stream=True))
        assert b'"Hi"' in await anext(reply.chunks())
        await reply.close()
        await reply.close()
        await asyncio.wait_for(server.calls[0].gone.wait(), 60)
        assert [piece async for piece in reply.chunks()] == []


async def test_other_endpoints_are_not_offered() -> None:
    async with upstream() as adapter:
        with pytest.raises(NotChat):
            await adapter.send(UpstreamRequest(model(1), b"{}", path="embeddings"))


async def test_no_name_of_litellms_is_taken_from_a_request() -> None:
    """Every name, with values of six types that point to a listener: refused, and nobody calls there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        names = load().steering - OPENAI - READ_HERE
        assert {"api_base", "base_url", "extra_headers", "mock_response", "fallbacks", "client"} <= names
        assert len(names) > 300
        async with upstream() as adapter:
            for name in [*names, "extra_body", "hooks", "aws_bedrock_runtime_endpoint", "api_type"]:
                for value in (address, 1, True, None, [address], {"api_base": address, "url": address}):
                    body = json.dumps({"messages": [{"role": "user", "content": "x"}], name: value}).encode()
                    with pytest.raises(BadRequest) as caught:
                        await adapter.send(UpstreamRequest(model(1), body))
                    assert caught.value.param == name
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_openais_fields_lead_nowhere_else() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with served(answering(whole(json.dumps(COMPLETION).encode()))) as server, upstream() as adapter:
            for name in sorted((OPENAI | READ_HERE) - {"model", "messages", "stream"}):
                for value in (address, [{"type": "mcp", "server_url": address, "api_base": address}]):
                    body = json.dumps({"messages": [{"role": "user", "content": "x"}], name: value}).encode()
                    reply = await adapter.send(to(server, body=body))
                    assert reply.status in (200, 400), (name, value)
                    await reply.close()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_every_switch_is_one_of_litellms() -> None:
    """A name that litellm does not know would be set without any effect."""
    load()
    litellm = sys.modules["litellm"]
    declared = Path(str(litellm.__file__)).read_text("utf-8")
    assert {name: getattr(litellm, name) for name in SWITCHES} == SWITCHES
    assert [name for name in SWITCHES if f"\n{name}:" not in declared and f"\n{name} =" not in declared] == []
    assert all(getattr(litellm, name) == [] for name in CALLBACKS)


@pytest.mark.parametrize("status", [b"200 OK", b"500 Internal Server Error"])
async def test_no_cycle_holds_the_request(status: bytes) -> None:
    async def ask() -> None:
        reply = await adapter.send(to(server))
        await reply.read(1 << 20)
        await reply.close()

    answer = answering(whole(json.dumps(COMPLETION).encode(), status=status))
    async with served(answer) as server, upstream() as adapter:
        await ask()
        gc.collect()
        gc.disable()
        try:
            await ask()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            assert [thing for thing in gc.garbage if isinstance(thing, httpx.Request)] == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
