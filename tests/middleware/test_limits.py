import asyncio

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transom.middleware.limits import InFlight, Limits, Reason


class World:
    """The layer around an application, a wire that delivers `chunks`, and what was refused."""

    def __init__(self, app: ASGIApp, requests: int = 2, size: int = 100) -> None:
        self.draining = False
        self.in_flight = InFlight(requests, size, lambda: self.draining)
        self.layer = Limits(app, self.in_flight, self.refuse)
        self.refused: list[Reason] = []
        self.sent: list[Message] = []

    async def refuse(self, scope: Scope, receive: Receive, send: Send, reason: Reason) -> None:
        self.refused.append(reason)

    async def call(self, *chunks: bytes, path: str = "/v1/chat/completions") -> None:
        wire: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        wire.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive() -> Message:
            return wire.pop(0) if wire else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.sent.append(message)

        await self.layer({"type": "http", "path": path}, receive, send)


async def read_all(receive: Receive) -> bool:
    """Read to the end of the body; False if the client left."""
    while (message := await receive()).get("more_body"):
        pass
    return bool(message["type"] == "http.request")


async def test_what_is_in_flight_is_counted_and_released() -> None:
    seen: list[tuple[int, int]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await read_all(receive)
        seen.append((world.in_flight.requests, world.in_flight.bytes))

    world = World(app)
    await world.call(b"12345", b"678")
    assert seen == [(1, 8)]
    assert (world.in_flight.requests, world.in_flight.bytes, world.refused) == (0, 0, [])


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_it_is_released_in_any_outcome(error: type[BaseException]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise error

    world = World(app)
    with pytest.raises(error):
        await world.call(b"12345")
    assert (world.in_flight.requests, world.in_flight.bytes) == (0, 0)


async def test_one_request_too_many_is_refused() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await leave.wait()

    world = World(app, requests=1)
    first = asyncio.create_task(world.call())
    await entered.wait()
    await world.call()
    leave.set()
    await first
    assert world.refused == ["overloaded"]
    await world.call()
    assert world.refused == ["overloaded"]


async def test_draining_refuses_but_not_beyond_the_prefix() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})

    world = World(app)
    world.draining = True
    await world.call()
    await world.call(path="/healthz")
    assert (world.refused, len(world.sent)) == (["draining"], 1)


async def test_bytes_beyond_the_bound_refuse_the_request_that_brings_them() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()
    whole: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        whole.append(await read_all(receive))
        if not entered.is_set():
            entered.set()
            await leave.wait()

    world = World(app, size=10)
    first = asyncio.create_task(world.call(b"123456"))
    await entered.wait()
    await world.call(b"123", b"45", b"67")
    assert (whole, world.refused, world.in_flight.bytes) == ([True, False], ["overloaded"], 6)
    leave.set()
    await first
    assert world.in_flight.bytes == 0


async def test_an_answer_that_has_begun_is_not_followed_by_a_refusal() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if entered.is_set():
            await send({"type": "http.response.start", "status": 200})
        assert await read_all(receive) != entered.is_set()
        entered.set()
        await leave.wait()

    world = World(app, size=5)
    first = asyncio.create_task(world.call(b"1234"))
    await entered.wait()
    leave.set()
    await world.call(b"5678")
    await first
    assert world.refused == []


async def test_a_single_request_may_be_larger_than_the_bound() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert await read_all(receive)

    world = World(app, size=3)
    await world.call(b"12345")
    assert world.refused == []


async def test_other_protocols_pass() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["seen"] = True

    scope: Scope = {"type": "lifespan"}
    await World(app).layer(scope, None, None)  # type: ignore[arg-type]
    assert scope["seen"]
