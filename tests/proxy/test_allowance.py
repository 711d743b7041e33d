"""What summaries may cost a tenant in a day: counted as the provider counts, shared by calls at the same time."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.policies.builders import user, words
from tests.proxy.builders import MODEL, Talk, content, tenant
from transom.policies.items import Message
from transom.policies.render import Spoken
from transom.policies.summary_size import SummarySize
from transom.policies.view import Summary, View
from transom.proxy.allowance import HOUR_S, HOURS, Allowance
from transom.proxy.folding import FoldJob
from transom.proxy.metrics import Metrics
from transom.proxy.summaries import Summariser, SummaryFailed, SummaryReply, Tools
from transom.storage.rows import BaselineRow, SummaryRow

CALL = 30  # tokens: ten of instruction, ten of record, ten at most of answer


def unplaced(_summary: Summary) -> View:
    raise AssertionError


class Spender:
    """An allowance on a clock of its own, before a model that answers what it is told to, once its gate opens."""

    def __init__(self, reply: SummaryReply | None = None) -> None:
        self.reply = reply or SummaryReply("Fine.", "stop", cost=CALL)
        self.now, self.made, self.gate = 0.0, 0, asyncio.Event()
        self.gate.set()
        self.allowance = Allowance(self._answer, words, lambda: self.now)

    async def _answer(self, _job: FoldJob, _instruction: str, _record: str, _limit: int) -> SummaryReply:
        self.made += 1
        await self.gate.wait()
        return self.reply

    def job(self, most: int | None, name: str = "acme") -> FoldJob:
        talk = Talk(user("hello"))
        talk.tenant = tenant(name=name, summary_tokens_per_day=most)
        return FoldJob(talk.request(), View(), (0,), 1, unplaced, True, SummarySize(10), False, 0)

    async def call(self, most: int | None, **more: Any) -> SummaryReply | None:
        """Make a call; None where there are no tokens for it."""
        try:
            return await self.allowance(self.job(most, **more), "one " * 10, "two " * 10, 10)
        except SummaryFailed:
            return None


async def test_without_a_limit_everything_is_affordable() -> None:
    spender = Spender(SummaryReply("Fine.", "stop", cost=10**9))
    for _ in range(3):
        assert spender.allowance.affords(spender.job(None))
        assert await spender.call(None) is not None


async def test_calls_are_made_while_they_fit() -> None:
    spender = Spender()
    made = [await spender.call(3 * CALL + 29) is not None for _ in range(5)]
    assert made == [True, True, True, False, False]
    assert spender.made == 3


async def test_nothing_a_day_means_no_summaries() -> None:
    spender = Spender()
    assert not spender.allowance.affords(spender.job(0))
    with pytest.raises(SummaryFailed) as refused:
        await spender.allowance(spender.job(0), "Write.", "This.", 10)
    assert refused.value.outcome == "budget"


async def test_what_a_call_cost_counts_and_not_what_it_might_have() -> None:
    spender = Spender(SummaryReply("Fine.", "stop", cost=10))
    made = [await spender.call(50) is not None for _ in range(4)]
    assert made == [True, True, True, False]


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (SummaryReply("Fine.", "stop"), 2),
        (SummaryReply(failure="status 500"), 5),
        (SummaryReply(failure="refusal", cost=CALL), 2),
    ],
    ids=["no figures: what it might have cost", "no answer: nothing", "a refusal costs what it costs"],
)
async def test_what_counts_without_a_summary(reply: SummaryReply, calls: int) -> None:
    spender = Spender(reply)
    assert sum([await spender.call(2 * CALL) is not None for _ in range(5)]) == calls


async def test_calls_at_the_same_time_share_what_is_left() -> None:
    spender = Spender()
    spender.gate.clear()
    calls = [asyncio.create_task(spender.call(2 * CALL)) for _ in range(5)]
    while spender.made < 2 or sum(call.done() for call in calls) < 3:
        await asyncio.sleep(0)
    spender.gate.set()
    assert sum(reply is not None for reply in await asyncio.gather(*calls)) == 2


async def test_a_call_that_was_given_up_keeps_its_share() -> None:
    spender = Spender()
    spender.gate.clear()
    call = asyncio.create_task(spender.call(CALL))
    while not spender.made:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert not spender.allowance.affords(spender.job(CALL))


async def test_a_day_later_there_is_more() -> None:
    spender = Spender()
    await spender.call(CALL)
    spender.now = HOURS * HOUR_S
    assert not spender.allowance.affords(spender.job(CALL))
    spender.now += HOUR_S
    assert spender.allowance.affords(spender.job(CALL))
    assert await spender.call(CALL) is not None


async def test_after_a_refusal_no_other_is_begun_within_the_hour() -> None:
    """A small rest is worth nothing: each request would take a lease and render a transcript in vain."""
    spender = Spender()
    await spender.call(CALL + 5)
    assert spender.allowance.affords(spender.job(CALL + 5))
    await spender.call(CALL + 5)
    assert not spender.allowance.affords(spender.job(CALL + 5))
    assert spender.allowance.affords(spender.job(3 * CALL))  # a reload gave more
    spender.now = HOUR_S
    assert spender.allowance.affords(spender.job(CALL + 5))


async def test_each_tenant_spends_its_own() -> None:
    spender = Spender()
    await spender.call(CALL)
    assert spender.allowance.affords(spender.job(CALL, name="beta"))
    assert await spender.call(CALL, name="beta") is not None


async def test_a_spent_allowance_is_not_the_models_failure() -> None:
    """Two failures in a row would keep a thread from its summaries for a minute."""
    spender, metrics = Spender(), Metrics()

    async def nowhere(_job: FoldJob, _row: SummaryRow, _baseline: BaselineRow) -> None:
        raise AssertionError

    def said(message: Message) -> Spoken:
        return Spoken(message.role, [content(message)], [], None, None)

    summariser = Summariser(Tools(spender.allowance, lambda _job: MODEL, said, words, nowhere), metrics)
    job = replace(spender.job(0), wait_s=60)
    assert [await summariser.write(job) for _ in range(4)] == [None] * 4
    assert b'outcome="budget",policy="p",tenant="acme"} 4.0' in metrics.render()
