"""How a trimmer's wish becomes a job for the summariser: for real, as a rehearsal, ahead of need."""

import asyncio
from typing import Any

import pytest

from tests.policies.builders import exchanges, user
from tests.proxy.builders import NoSummaries, Talk
from transom.policies.summary_size import SummarySize
from transom.policies.view import Summary, View
from transom.proxy.folding import Background, Folding, FoldJob, Rehearsal
from transom.proxy.passes import Pass
from transom.storage.rows import SummaryRow

ROW = SummaryRow(b"1" * 16, b"s" * 16, b"u" * 16, 4, None, "So far.", 6, "m", "1")


class Writer(NoSummaries):
    """Writes one summary for all, and keeps the jobs; `task` is a fold under way."""

    def __init__(self, row: SummaryRow | None = ROW) -> None:
        super().__init__()
        self.row, self.jobs, self.joiners = row, list[FoldJob](), 0
        self.task: Any = None
        self.others = False

    async def write(self, job: Any) -> SummaryRow | None:
        self.jobs.append(job)
        return self.row

    def running(self, _request: Pass) -> Any:
        return self.task

    def elsewhere(self, _request: Pass) -> bool:
        return self.others

    def joined(self, _request: Pass) -> None:
        self.joiners += 1


def talk(**policy: Any) -> Talk:
    return Talk(*exchanges(4), user("and now"), **policy)


def folding(writer: Writer, request: Pass | None = None) -> Folding:
    return Folding(request or talk().request(), writer, 10)


# ---------------------------------------------------------------------- for real
async def test_a_wish_becomes_a_job() -> None:
    writer = Writer()
    asked = folding(writer)
    asked.view, asked.over_tokens, asked.size = View(), True, SummarySize(200)
    assert await asked([0, 1, 2, 3]) == Summary(ROW.id, "So far.", 6, 4)
    (job,) = writer.jobs
    assert (job.span, job.upto, job.over_tokens, job.size.text, job.wait_s) == ((0, 1, 2, 3), 4, True, 200, 10)
    assert (asked.made, asked.failed) == (True, False)


async def test_a_summary_stands_for_the_span_and_the_one_before() -> None:
    writer = Writer()
    asked = folding(writer)
    asked.view = View(2, (), Summary(b"0" * 16, "", 7, 2))
    await asked([2, 3])
    assert writer.jobs[0].replaced_tokens == 7 + 20


@pytest.mark.parametrize(("upto", "inside"), [(8, False), (9, True)])
async def test_work_since_the_last_user_message_is_told_apart(upto: int, inside: bool) -> None:
    writer = Writer()
    await folding(writer)([0, 1], upto)
    assert writer.jobs[0].current_turn is inside


async def test_what_is_kept_beside_a_summary_stays_in_order() -> None:
    writer = Writer()
    asked = folding(writer)
    await asked([1, 2, 3], 4)
    assert writer.jobs[0].placed(Summary(ROW.id, "", 6, 4)) == View(4, (0,), Summary(ROW.id, "", 6, 4))


async def test_a_trimmer_may_place_its_summary_itself() -> None:
    writer = Writer()
    await folding(writer)([0, 1], placed=lambda _summary: View(7))
    assert writer.jobs[0].placed(Summary(b"", "", 0, 0)) == View(7)


async def test_a_wish_that_failed_is_remembered_whatever_comes_after() -> None:
    writer = Writer(None)
    asked = folding(writer)
    assert await asked([0, 1]) is None
    writer.row = ROW
    await asked([0, 1])
    assert (asked.failed, asked.made) == (True, True)


async def test_who_folds_elsewhere_is_asked_only_after_a_refusal() -> None:
    writer = Writer()
    writer.others = True
    asked = folding(writer)
    await asked([0])
    assert not asked.elsewhere
    writer.row = None
    await asked([0])
    assert asked.elsewhere


@pytest.mark.parametrize("failing", ["the request's look-up", "the newest write"])
async def test_with_a_storage_that_fails_no_summary_is_paid_for(failing: str) -> None:
    writer, request = Writer(), talk().request()
    if failing == "the request's look-up":
        request.conversation.storage_failed = True
    else:
        request.state.failing = True
    asked = folding(writer, request)
    assert await asked([0, 1]) is None
    assert asked.failed
    assert writer.jobs == []


async def test_a_session_that_is_not_stored_is_summarised_all_the_same() -> None:
    writer, request = Writer(), talk().request()
    request.state.failing, request.conversation.persist = True, False
    assert await folding(writer, request)([0, 1]) is not None


# ---------------------------------------------------------------------- joining another's
async def test_nothing_to_join() -> None:
    assert not await folding(Writer()).join()


async def test_a_fold_under_way_is_waited_for_and_counted() -> None:
    writer = Writer()
    writer.task = asyncio.create_task(asyncio.sleep(0))
    assert await folding(writer).join()
    assert writer.joiners == 1


async def test_after_an_impatient_wait_no_second_fold_is_begun() -> None:
    writer = Writer()
    writer.task = asyncio.create_task(asyncio.Event().wait())
    asked = Folding(talk().request(), writer, 0)
    assert not await asked.join()
    assert await asked([0, 1]) is None
    assert (writer.jobs, writer.joiners, asked.failed) == ([], 0, True)
    assert not writer.task.done()
    writer.task.cancel()


# ---------------------------------------------------------------------- rehearsals, and ahead of need
async def test_a_rehearsal_counts_a_summary_of_the_allowed_size_and_asks_nobody() -> None:
    asked = Rehearsal(talk().request())
    asked.size = SummarySize(200)
    assert await asked([0, 1, 2]) == Summary(b"rehearsal", "", 200, 3)
    assert await asked([0], 5) == Summary(b"rehearsal", "", 200, 5)
    assert not await asked.join()


@pytest.mark.parametrize(("least", "made"), [(40, 1), (41, 0)])
async def test_ahead_of_need_small_spans_are_left_for_later(least: int, made: int) -> None:
    writer = Writer()
    request = talk(min_span_tokens=least, summary_timeout=33).request()
    await Background(request, writer)([0, 1, 2, 3])
    assert [job.wait_s for job in writer.jobs] == [33] * made


async def test_a_request_over_its_limit_folds_small_spans_too() -> None:
    writer = Writer()
    await folding(writer, talk(min_span_tokens=10_000).request())([0])
    assert len(writer.jobs) == 1
