"""Bodies that take long are read in a thread: large ones, and small ones of very many members or escapes."""

import asyncio
from typing import Any

import pytest

from transom.proxy.wire.chat import parse_call, parse_call_off_loop
from transom.proxy.wire.relayed import parse_relayed_off_loop

SAID = b'"model":"m","messages":[{"role":"user","content":"%b"}]}'
LARGE = b"{" + SAID % (b"plain words. " * 90_000)
MEMBERS = b"{" + b'"a":1,' * 50_000 + SAID % b"Hello."
ELEMENTS = b'{"model":"m","messages":[{"role":"user"}' + b",0" * 50_000 + b"]}"
SURROGATES = b"{" + SAID % (b"\\ud83d" * 60_000)
BODIES = [
    (b"{" + SAID % b"Hello.", False),
    (b"{" + SAID % (b"plain words. " * 70_000), False),
    (LARGE, True),
    (MEMBERS, True),
    (ELEMENTS, True),
    (SURROGATES, True),
]


@pytest.fixture
def asides(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is being done in a thread."""
    asked: list[Any] = []

    async def note(function: Any, *args: Any, **named: Any) -> Any:
        asked.append(function)
        return function(*args, **named)

    monkeypatch.setattr(asyncio, "to_thread", note)
    return asked


@pytest.mark.parametrize(("body", "aside"), BODIES)
async def test_what_takes_long_is_read_aside(asides: list[Any], body: bytes, aside: bool) -> None:
    assert (await parse_call_off_loop(body)).fields == parse_call(body).fields
    assert (asides != []) is aside


@pytest.mark.parametrize(("body", "aside"), BODIES)
async def test_so_is_what_is_only_relayed(asides: list[Any], body: bytes, aside: bool) -> None:
    await parse_relayed_off_loop(body, "application/json", any_type=False)
    assert (asides != []) is aside


@pytest.mark.parametrize("body", [LARGE, ELEMENTS])
async def test_messages_are_split_there_as_well(asides: list[Any], body: bytes) -> None:
    call = await parse_call_off_loop(body)
    split = parse_call(body)
    assert call != split
    split.resume([])
    assert call == split
