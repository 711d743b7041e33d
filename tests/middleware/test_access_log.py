from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.testing import capture_logs

from transom.middleware.access_log import CLIENT_GONE, AccessLog


async def call(app: ASGIApp, path: str = "/v1/x", body: bytes = b"hello", **more: Any) -> list[Any]:
    """Send one request through the layer; return the lines that were logged."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        return None

    scope: Scope = {"type": "http", "method": "POST", "path": path, "query_string": b"secret=1", "headers": [], **more}
    with capture_logs() as lines:
        await AccessLog(app, quiet=frozenset({"/healthz"}))(scope, receive, send)
    return lines


def answering(status: int, *chunks: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})

    return app


async def test_one_line_with_counts() -> None:
    (line,) = await call(answering(200, b"abc", b"de"), state={"request_id": "r1"})
    assert line.pop("ms") >= 0
    assert line == {
        "event": "request",
        "log_level": "info",
        "request_id": "r1",
        "method": "POST",
        "path": "/v1/x",
        "status": 200,
        "complete": True,
        "bytes_in": 5,
        "bytes_out": 5,
    }


async def test_the_applications_fields_are_added() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["log"]["tenant"] = "acme"
        await answering(200)(scope, receive, send)

    (line,) = await call(app)
    assert line["tenant"] == "acme"


async def test_a_routed_path_is_logged_as_its_template() -> None:
    async def user(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/admin/users/{user}", user, methods=["POST"])])
    (line,) = await call(app, "/admin/users/jane@example.org", root_path="")
    assert line["path"] == "/admin/users/{user}"
    assert "jane" not in str(line)


async def test_an_unrouted_path_is_clipped_and_no_query_logged() -> None:
    (line,) = await call(answering(404), "/" + "x" * 5000)
    assert len(line["path"]) == 100
    assert "secret" not in str(line)


async def test_a_client_that_left_before_an_answer() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        return None

    (line,) = await call(app)
    assert (line["status"], line["complete"]) == (CLIENT_GONE, False)


async def test_an_answer_that_broke_off() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ab", "more_body": True})

    (line,) = await call(app)
    assert (line["status"], line["complete"], line["bytes_out"]) == (200, False, 2)


async def test_a_failure_is_logged_by_type_and_raised() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("the user's text")

    with capture_logs() as lines, pytest.raises(ValueError, match="text"):
        await AccessLog(app)({"type": "http", "method": "GET", "path": "/"}, None, None)  # type: ignore[arg-type]
    assert (lines[0]["status"], lines[0]["error"]) == (500, "ValueError")
    assert "text" not in str(lines)


async def test_quiet_paths_are_logged_only_when_they_fail() -> None:
    assert await call(answering(200), "/healthz") == []
    assert len(await call(answering(503), "/healthz")) == 1


async def test_other_protocols_pass() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["seen"] = True

    scope: Scope = {"type": "lifespan"}
    await AccessLog(app)(scope, None, None)  # type: ignore[arg-type]
    assert scope == {"type": "lifespan", "seen": True}
