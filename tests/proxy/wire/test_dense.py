"""Bodies that take long are read in a thread: large ones, and small ones of very many members or escapes."""

import threading

import pytest

from transom.proxy.wire import chat
from transom.proxy.wire.chat import parse_call_off_loop

SAID = b'"model":"m","messages":[{"role":"user","content":"%b"}]}'


@pytest.mark.parametrize(
    ("body", "aside"),
    [
        (b"{" + SAID % b"Hello.", False),
        (b"{" + SAID % (b"plain words, " * 70_000), False),
        (b"{" + SAID % (b"plain words, " * 90_000), True),
        (b"{" + b'"a":1,' * 50_000 + SAID % b"Hello.", True),
        (b"{" + SAID % (b"\\ud83d" * 60_000), True),
    ],
)
async def test_what_takes_long_is_read_aside(monkeypatch: pytest.MonkeyPatch, body: bytes, aside: bool) -> None:
    readers: list[threading.Thread] = []

    def parse(raw: bytes) -> None:
        readers.append(threading.current_thread())

    monkeypatch.setattr(chat, "parse_call", parse)
    await parse_call_off_loop(body)
    assert (readers != [threading.main_thread()]) is aside
