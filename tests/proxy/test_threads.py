"""What no request shows: that memory of earlier requests is bounded, and stays of use within its bounds."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from transom.policies.history import History
from transom.policies.items import Message
from transom.proxy.threads import MANY, HistoryCache, Preambles, SessionState, Thread, adopt, read

SYSTEM = Message("system", b"{}", bytes(16), 5, 1)


def state(number: int, weight: int) -> SessionState:
    return SessionState(number.to_bytes(16, "big"), bytes(32), weight=weight)


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = HistoryCache(100)
    for number in range(5):
        cache.put(state(number, 40), 0)
    assert len(cache) == 2
    assert cache.weight == 80
    assert cache.get((4).to_bytes(16, "big")) is not None
    assert cache.get((2).to_bytes(16, "big")) is None


def test_the_session_in_use_stays_however_large_it_is() -> None:
    cache = HistoryCache(100)
    cache.put(state(1, 1000), 0)
    assert len(cache) == 1


def test_a_forgotten_session_is_not_found_by_its_root() -> None:
    cache, scope = HistoryCache(100), b"scope"
    known = state(1, 10)
    thread = Thread(slices=[b'{"role":"user"}'])
    known.threads.append(thread)
    cache.put(known, 0)
    cache.index_root(scope, known, thread)
    assert list(cache.rooted(scope, [b'{"role":"system"}', thread.slices[0]])) == [thread]
    assert list(cache.rooted(b"other", thread.slices)) == []
    cache.forget(known.id)
    assert list(cache.rooted(scope, thread.slices)) == []
    assert cache.weight == 0


def test_preambles_are_bounded_in_number_and_bytes() -> None:
    preambles = Preambles(most=3, most_bytes=100)
    for number in range(5):
        preambles.keep(b"%d" % number, SYSTEM)
    assert [preambles.get(b"%d" % number) for number in range(5)] == [None, None, SYSTEM, SYSTEM, SYSTEM]
    preambles.keep(b"x" * 99, SYSTEM)
    assert preambles.get(b"4") is not None or preambles.get(b"x" * 99) is not None
    preambles.keep(b"y" * 101, SYSTEM)
    assert preambles.get(b"y" * 101) is None


def test_a_preamble_kept_again_counts_once() -> None:
    preambles = Preambles(most_bytes=100)
    for _ in range(50):
        preambles.keep(b"x" * 10, SYSTEM)
    assert preambles.get(b"x" * 10) is SYSTEM


async def parse(slices: Sequence[bytes], _start: int) -> list[Message]:
    return [Message("user", raw, raw.rjust(16, b"0"), 5, 1) for raw in slices]


@pytest.mark.parametrize(("length", "aside"), [(1, []), (MANY, []), (MANY + 1, [History])])
async def test_a_long_new_thread_is_made_where_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, length: int, aside: list[Any]
) -> None:
    asked: list[Any] = []

    async def note(function: Any, *args: Any) -> Any:
        asked.append(function)
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", note)
    slices = [b"%d" % number for number in range(length)]
    thread = adopt(state(1, 0), await read(slices, [], Preambles(), parse))
    assert asked == aside
    assert thread.slices == slices
    assert [m.payload for m in thread.history.messages] == slices
    assert len(thread.history.outline) == len(set(thread.ids)) == length
