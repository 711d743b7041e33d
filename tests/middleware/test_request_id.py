import os
import re

import pytest
from starlette.types import Message, Receive, Scope, Send

from transom.middleware.request_id import RequestId, request_id


async def answer(headers: list[tuple[bytes, bytes]], own: list[tuple[bytes, bytes]]) -> tuple[Scope, list[Message]]:
    """Send a request with `headers` through the layer to an application that answers with the headers `own`."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": own})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive() -> Message:
        raise AssertionError("nobody reads")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "headers": headers}
    await RequestId(app)(scope, receive, send)
    return scope, sent


@pytest.mark.parametrize("value", [b"a", b"req-1!~", b"x" * 128])
def test_a_visible_ascii_id_is_accepted(value: bytes) -> None:
    assert request_id([(b"host", b"h"), (b"x-request-id", value)]) == value.decode()


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"a b", b"a\n", b"caf\xc3\xa9", b"\x00"])
def test_any_other_id_is_replaced(value: bytes) -> None:
    assert re.fullmatch("[0-9a-f]{32}", request_id([(b"x-request-id", value)]))


def test_made_ids_differ() -> None:
    assert request_id([]) != request_id([])


def test_the_ids_of_forked_workers_differ() -> None:
    ends = [os.pipe() for _ in range(2)]
    for _, writing in ends:
        if os.fork() == 0:
            os.write(writing, request_id([]).encode())
            os._exit(0)
    made = {os.read(reading, 32)[12:] for reading, _ in ends}
    for end in ends:
        os.wait()
        os.close(end[0])
        os.close(end[1])
    assert len(made) == 2


async def test_scope_and_answer_carry_the_same_id() -> None:
    scope, sent = await answer([], [(b"a", b"b")])
    assert sent[0]["headers"] == [(b"a", b"b"), (b"x-request-id", scope["state"]["request_id"].encode())]
    assert sent[1] == {"type": "http.response.body", "body": b"ok"}


async def test_the_applications_own_header_stays_alone() -> None:
    _, sent = await answer([(b"x-request-id", b"mine")], [(b"X-Request-Id", b"upstream's")])
    assert sent[0]["headers"] == [(b"X-Request-Id", b"upstream's")]


async def test_other_protocols_pass() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await RequestId(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]
