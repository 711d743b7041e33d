"""The layer for web pages: out of the way without origins."""

from starlette.types import Receive, Scope, Send

from transom.middleware.cors import Cors


async def test_without_origins_the_application_gets_the_servers_own_callables() -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((receive, send))

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(_message: object) -> None: ...

    layer = Cors(app)
    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [(b"origin", b"https://a.example")]}
    await layer(scope, receive, send)
    layer.allow(("https://a.example",))
    await layer(scope | {"path": "/admin"}, receive, send)
    await layer({"type": "lifespan"}, receive, send)
    await layer(scope, receive, send)
    assert seen[:3] == [(receive, send)] * 3
    assert seen[3] != (receive, send)
