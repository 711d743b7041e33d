"""When a fold is begun before it is needed: above the mark, once a thread, and never for what nobody would see."""

import asyncio
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.proxy.builders import NoSummaries, exchange
from transom.policies.view import Size, View
from transom.proxy.ahead import Ahead
from transom.proxy.exchange import Exchange
from transom.proxy.passes import Pass
from transom.proxy.windowing import Windowing

WORDS = {"role": "user", "content": "word " * 76}  # 80 tokens with its own four
SAID = {"messages": [WORDS]}
POLICY: dict[str, Any] = {"strategy": "context_window", "max_tokens": 100, "compact_at": 0.8}


class Folds:
    """Takes the place of windowing: keeps who folds at which size, until the gate opens."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self.gate = asyncio.Event()
        self.fault: Exception | None = None
        self.cancelled = False

    async def fold_ahead(self, _request: Pass, size: Size) -> None:
        self.sizes.append(size)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.fault is not None:
            raise self.fault


class Busy(NoSummaries):
    def running(self, _request: Pass) -> Any:
        return object()


def ahead(folds: Folds, *, busy: bool = False, draining: bool = False) -> Ahead:
    return Ahead(cast(Windowing, folds), Busy() if busy else NoSummaries(), lambda: draining)


def finished(reply: int = 1, body: dict[str, Any] | None = None, **policy: Any) -> Exchange:
    """Return an exchange whose view was 80 tokens, with an answer of `reply`."""
    done = exchange(body or SAID, View(), **POLICY | policy)
    done.reply_size = Size(reply, 1)
    return done


async def begun(folds: Folds, made: Ahead, *done: Exchange) -> int:
    """Consider these exchanges; return how many folds were begun."""
    for one in done:
        made.consider(one)
    await asyncio.sleep(0)
    return len(folds.sizes)


async def test_above_the_mark_the_next_request_is_folded_for() -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds), finished(1)) == 1
    assert folds.sizes == [Size(81, 2)]


async def test_at_the_mark_nothing_is_due() -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds), finished(0)) == 0


async def test_items_have_their_mark_too() -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds), finished(0, max_tokens=None, max_context_items=2)) == 1


@pytest.mark.parametrize(
    "policy",
    [{"compact_at": None}, {"strategy": "truncate"}, {"max_tokens": None}],
    ids=["off", "no model", "no limit"],
)
async def test_policies_that_fold_nothing_ahead(policy: dict[str, Any]) -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds), finished(**policy)) == 0


async def test_a_threads_first_request_may_be_its_last() -> None:
    folds, first = Folds(), finished()
    first.conversation.match = "new_root"
    assert await begun(folds, ahead(folds), first) == 0


async def test_what_was_not_windowed_is_not_folded() -> None:
    folds, bare = Folds(), finished()
    bare.decision = None
    assert await begun(folds, ahead(folds), bare) == 0


async def test_a_thread_that_is_being_folded_is_left_alone() -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds, busy=True), finished()) == 0


async def test_nothing_is_begun_while_the_server_drains() -> None:
    folds = Folds()
    assert await begun(folds, ahead(folds, draining=True), finished()) == 0


async def test_one_fold_at_a_time_for_each_thread() -> None:
    folds = Folds()
    made, done = ahead(folds), finished()
    assert (
        await begun(folds, made, done, done, finished(body={"messages": [WORDS | {"role": "user", "name": "b"}]})) == 2
    )
    folds.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await begun(folds, made, done) == 3


async def test_a_fault_is_logged_and_ends_nothing() -> None:
    folds = Folds()
    made, done = ahead(folds), finished()
    folds.fault = ValueError("secret words")
    with capture_logs() as logs:
        await begun(folds, made, done)
        folds.gate.set()
        for _ in range(3):
            await asyncio.sleep(0)
    assert [entry["event"] for entry in logs] == ["background fold failed"]
    assert "secret words" not in str(logs)
    assert await begun(folds, made, done) == 2


async def test_closing_ends_what_is_under_way() -> None:
    folds = Folds()
    made = ahead(folds)
    await begun(folds, made, finished())
    await made.close()
    assert folds.cancelled
