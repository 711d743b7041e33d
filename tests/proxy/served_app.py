"""A program for tests of processes and signals: serves a small application and says on standard output what happens.

Arguments: port, number of workers, seconds to drain. Environment: FAIL_START=1 makes the application's start fail;
FAIL_LATER names a file that, while it is there, does so too.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from transom.proxy import logs
from transom.proxy.connection import Bounds
from transom.proxy.drain import Drain
from transom.proxy.metrics import Metrics
from transom.proxy.process import Listen, run
from transom.proxy.workers import run_workers


@dataclass
class Small:
    app: ASGIApp
    admin_app: ASGIApp | None


def say(*words: object) -> None:
    """Write a line at once, so that several processes' lines stay whole."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def failing() -> bool:
    """Tell whether the application's start is to fail."""
    return "FAIL_START" in os.environ or ("FAIL_LATER" in os.environ and Path(os.environ["FAIL_LATER"]).exists())


async def slow(send: Send, drain: Drain) -> None:
    """Answer a while after the server has begun to end."""
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    while not drain.draining:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # time to end, for a server that does not wait
    await send({"type": "http.response.body", "body": b"draining"})


def assemble(drain: Drain) -> Small:
    """Return an application that answers with its process id, streams until told to end, is slow, or hangs."""
    metrics = Metrics()

    async def lifespan(receive: Receive, send: Send) -> None:
        await receive()
        if failing():
            say("failing", os.getpid())
            await send({"type": "lifespan.startup.failed"})
            return
        await send({"type": "lifespan.startup.complete"})
        say("started", os.getpid())
        await receive()
        say("ended", os.getpid())
        await send({"type": "lifespan.shutdown.complete"})

    async def stream(send: Send) -> None:
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await drain.expired.wait()
        await send({"type": "http.response.body", "body": b"data: error\n\n"})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        metrics.request("t", "m", scope["path"], 200)
        metrics.settle()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            await stream(send)
        elif scope["path"] == "/hang":
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.Event().wait()
        elif scope["path"] == "/slow":
            await slow(send, drain)
        else:
            text = metrics.render() if scope["path"] == "/metrics" else str(os.getpid()).encode()
            await send({"type": "http.response.body", "body": text})

    async def admin(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"admin"})

    return Small(app, admin)


if __name__ == "__main__":
    logs.configure("json")
    port, workers, drain_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    listen = Listen("127.0.0.1", port, Bounds(10, 30, 75), 0, drain_s)
    listen.open()
    say("ports", *(listener.getsockname()[1] for listener in listen.sockets))
    sys.exit(run(assemble, listen) if workers == 1 else run_workers(assemble, listen, workers))
