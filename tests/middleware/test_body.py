from collections.abc import Iterable

import pytest
from starlette.types import Message, Receive

from transom.middleware.body import BodyTooLarge, ClientGone, content_length, read_body


def arriving(messages: Iterable[Message]) -> Receive:
    queue = list(messages)

    async def receive() -> Message:
        return queue.pop(0)

    return receive


def parts(*chunks: bytes) -> list[Message]:
    *most, last = chunks
    return [
        *({"type": "http.request", "body": chunk, "more_body": True} for chunk in most),
        {"type": "http.request", "body": last},
    ]


async def test_the_parts_are_joined() -> None:
    assert await read_body(arriving(parts(b"ab", b"", b"c")), 3) == b"abc"


async def test_one_part_is_handed_on_as_it_is() -> None:
    body = b"x" * 1000
    assert await read_body(arriving(parts(body)), 1000, 1000) is body


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(arriving([]), 9, 10)


async def test_an_undeclared_body_is_refused_where_it_crosses_the_limit() -> None:
    receive = arriving(parts(b"12345", b"6", b"never read"))
    with pytest.raises(BodyTooLarge):
        await read_body(receive, 5)
    assert (await receive())["body"] == b"never read"


async def test_a_client_that_leaves_midway() -> None:
    with pytest.raises(ClientGone):
        await read_body(arriving([*parts(b"a", b"b")[:1], {"type": "http.disconnect"}]), 10)


@pytest.mark.parametrize(
    ("headers", "length"),
    [([(b"host", b"h"), (b"content-length", b"12")], 12), ([], None), ([(b"content-length", b"-1")], None)],
)
def test_content_length(headers: list[tuple[bytes, bytes]], length: int | None) -> None:
    assert content_length(headers) == length
