"""A request that has ended is gone: reference counts free all of it, and the garbage collector has nothing to find."""

import asyncio
import gc
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.types import Message, Scope

from transom.proxy import app, chat
from transom.proxy.config.load import from_mapping
from transom.proxy.config.watch import LiveSettings
from transom.proxy.drain import Drain


@pytest.fixture
def transom(tmp_path: Path) -> app.Transom:
    storage = {"url": f"sqlite+aiosqlite:///{tmp_path}/t.db"}
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    models = [
        {"model_name": "demo", "litellm_params": {"model": "transom/demo"}},
        {"model_name": "gone", "litellm_params": {"model": "openai/gone", "api_base": nobody}},
    ]
    return app.build(LiveSettings(lambda: from_mapping({"storage": storage, "model_list": models})), Drain())


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


async def ask(transom: app.Transom, session: str, *, stream: bool, model: str = "demo") -> list[Message]:
    """Send one request as a server would."""
    said = [{"role": "user", "content": f"How is the weather in {session}?"}]
    body = json.dumps({"model": model, "messages": said, "stream": stream}).encode()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": app.CHAT,
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1"), (b"x-session-id", session.encode())],
    }
    await asyncio.create_task(transom.app(scope, receive, send))  # type: ignore[arg-type]
    return sent


async def cycles(transom: app.Transom, *, stream: bool) -> int:
    """Count the objects that stay behind in cycles when ten requests have ended."""
    await asyncio.sleep(0.1)
    gc.collect()
    for number in range(10):
        assert (await ask(transom, f"town-{number}", stream=stream))[0]["status"] == 200
    await asyncio.sleep(0.1)
    return gc.collect()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("watched", [False, True])
async def test_a_request_leaves_no_cycle(
    transom: app.Transom, monkeypatch: pytest.MonkeyPatch, stream: bool, watched: bool
) -> None:
    if watched:
        monkeypatch.setattr(chat, "WATCH_AFTER_S", 0)
    for number in range(3):  # what is made once
        await ask(transom, f"warm-{number}", stream=stream)
    # What else lives in this process leaves cycles now and then; a request that leaves one does so each time.
    left = await cycles(transom, stream=stream)
    for _ in range(3):
        left = left and await cycles(transom, stream=stream)
    assert left == 0
    await transom.store.close()


@pytest.mark.usefixtures("_uncollected")
async def test_a_request_that_reaches_nobody_leaves_no_cycle(transom: app.Transom) -> None:
    for number in range(3):
        await ask(transom, f"warm-{number}", stream=False, model="gone")
    await asyncio.sleep(0.1)
    gc.collect()
    for number in range(10):
        assert (await ask(transom, f"town-{number}", stream=False, model="gone"))[0]["status"] == 502
    await asyncio.sleep(0.1)
    assert gc.collect() == 0
    await transom._direct.aclose()
    await transom.store.close()
