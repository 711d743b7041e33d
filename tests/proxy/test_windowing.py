"""What is decided on a request: replayed, begun where the last one ended, trimmed, and made smaller after a refusal."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.policies.builders import assistant, call, exchanges, finished, result, system, user
from tests.policies.histories import Move, acceptable, moves
from tests.proxy.builders import NoSummaries, Talk, positions, windowing
from transom.policies.view import Substitute, View
from transom.proxy import recipes
from transom.proxy.folding import as_summary
from transom.proxy.passes import Decision, Pass, before
from transom.proxy.threads import Sent
from transom.storage.rows import BaselineRow, SummaryRow

LIMITED: dict[str, Any] = {"max_tokens": 100, "trim_to": 0.5}
NOBODY = windowing(NoSummaries())


def talk(turns: int = 8, **policy: Any) -> Talk:
    """Return a conversation of turns of 20 tokens and a last question of 10."""
    return Talk(*exchanges(turns), user("and now", 10), **LIMITED | policy)


def sent(request: Pass, decision: Decision) -> list[int]:
    return positions(request.history, decision.view)


def cut(request: Pass, start: int, **more: Any) -> BaselineRow:
    """Return the baseline of a cut before a position."""
    plain: dict[str, Any] = {
        "session": request.state.id,
        "at": request.thread.ids[start - 1],
        "position": start - 1,
        "kind": "cut",
        "policy": request.cut_policy,
        "recipe": recipes.encode(View(start)),
    }
    return BaselineRow(**plain | more)


def summed_up(request: Pass, upto: int, tokens: int = 6) -> BaselineRow:
    """Return the baseline of a summary of all before a position."""
    row = SummaryRow(bytes([upto]) * 16, request.state.id, request.thread.ids[upto - 1], upto, None, "", tokens, "", "")
    request.state.summaries[row.id] = row
    recipe = recipes.encode(View(upto, (), as_summary(row)))
    return cut(request, upto, kind="summary", policy=b"", recipe=recipe, summary=row.id)


# ---------------------------------------------------------------------- deciding
async def test_what_fits_goes_as_it_is() -> None:
    request = talk(2).request()
    decision = await NOBODY.decide(request)
    assert decision.view.is_whole
    assert (decision.labels, decision.decisive, decision.over_budget) == (["fits"], False, False)


async def test_a_cut_goes_down_to_the_low_water_mark_and_stays() -> None:
    one = talk()
    request = one.request()
    decision = await NOBODY.decide(request)
    assert sent(request, decision) == [12, 13, 14, 15, 16]
    assert (decision.labels, decision.decisive, decision.removed) == (["cut"], True, {"truncate": 12})
    one.say(assistant("so", 10), user("and then", 10))
    later = await NOBODY.decide(one.request())
    assert (later.view.start, later.labels) == (12, ["fits"])


async def test_where_another_process_may_know_of_a_summary_the_decision_is_recorded_first() -> None:
    shared, ahead = windowing(NoSummaries(), shared=True), {"compact_at": 0.8}
    below, above = talk(3, **ahead), talk(4, **ahead)  # 70 and 90 tokens of 100
    assert [(await shared.decide(one.request())).decisive for one in (below, above)] == [False, True]
    assert not (await NOBODY.decide(above.request())).decisive
    request = talk(3, **ahead).request()
    request.state.baselines = [summed_up(request, 2)]
    decision = await shared.decide(request)
    assert (decision.view.start, decision.decisive) == (2, True)


async def test_just_below_a_limit_the_decision_is_recorded_first() -> None:
    one = talk(4)  # 90 tokens of 100
    assert not (await NOBODY.decide(one.request())).decisive
    one.say(assistant("", 6))
    assert (await NOBODY.decide(one.request())).decisive


async def test_over_the_limit_with_nothing_to_cut_is_said_and_logged_once_a_thread() -> None:
    one = Talk(user("long", 200), **LIMITED)
    with capture_logs() as logs:
        decision = await NOBODY.decide(one.request())
        assert decision.over_budget
        assert decision.labels == ["over-budget"]
        one.say(assistant("so", 10), user("long", 200))
        assert (await NOBODY.decide(one.request())).over_budget
    assert len(logs) == 1


async def test_a_summary_stays_away_from_a_request_that_has_room_for_all_but_it() -> None:
    one = Talk(*exchanges(2), user("long", 90), **LIMITED)
    request = one.request()
    request.state.remember_baseline(summed_up(request, 4, tokens=20))
    decision = await NOBODY.decide(request)
    assert (decision.view, decision.labels, decision.over_budget) == (View(4), ["cut"], False)
    assert not decision.baselines
    again = await NOBODY.decide(one.request())
    assert (again.view, again.labels) == (View(4), ["replayed", "cut"])
    one.say(assistant("so", 1), user("and then", 1))
    later = await NOBODY.decide(one.request())
    assert later.view.start > 4  # the long message is no longer the last
    assert later.view.summary is not None


async def test_the_first_request_with_a_summary_made_ahead_of_need_says_so() -> None:
    one = talk(4)
    request = one.request()
    first = await NOBODY.decide(request)
    one.thread.sent = Sent(request.preamble, first.view, len(request.history), first.sent.tokens)
    one.say(assistant("so", 1), user("and then", 1))
    request = one.request()
    request.state.remember_baseline(summed_up(request, 4))
    second = await NOBODY.decide(request)
    assert second.labels == ["compressed"]
    assert (await NOBODY.decide(one.request())).labels == ["replayed", "compressed"]
    one.thread.sent = Sent(request.preamble, second.view, len(request.history), second.sent.tokens)
    one.say(assistant("so", 1), user("and then", 1))
    assert (await NOBODY.decide(one.request())).labels == ["fits"]


# ---------------------------------------------------------------------- while no summary comes about
def unsummarised(turns: int = 12) -> Talk:
    """Return a conversation of turns of 200 tokens that is over its limit of 2,000 and would be summarised."""
    said = [message for _ in range(turns) for message in (user("do", 100), assistant("so", 100))]
    return Talk(*said, user("and now", 100), max_tokens=2000, trim_to=0.5, strategy=["compress", "truncate"])


class Elsewhere(NoSummaries):
    """Another process folds the thread, and has done so when it is asked for the `within`-th time."""

    def __init__(self, *, within: int) -> None:
        super().__init__()
        self._within = within

    async def write(self, job: Any) -> None:
        self.asked += 1
        if self.asked == self._within:
            job.request.state.remember_baseline(summed_up(job.request, job.upto))

    def elsewhere(self, _request: Pass) -> bool:
        return True


async def test_what_another_process_folds_is_waited_for_and_begun_with() -> None:
    others = Elsewhere(within=2)
    decision = await windowing(others, shared=True).decide(unsummarised().request())
    assert decision.view.summary is not None
    assert (decision.labels, decision.decisive, others.asked) == (["fits"], True, 2)
    assert decision.waited_s > 0


async def test_what_another_process_folds_is_waited_for_no_longer_than_summary_wait() -> None:
    others = Elsewhere(within=0)
    decision = await windowing(others, shared=True).decide(unsummarised().request(summary_wait=0.1))
    assert (decision.labels, decision.view.summary) == (["cut"], None)
    assert others.asked > 1


async def test_the_cut_that_stands_in_for_a_summary_stays_while_it_fits() -> None:
    nobody = NoSummaries()
    one = unsummarised()
    starts = []
    for _ in range(16):
        decision = await windowing(nobody).decide(one.request())
        assert decision.sent.tokens <= 2000
        assert decision.labels == ["cut"]
        assert not decision.baselines  # the next summary must cover what is cut
        starts.append(decision.view.start)
        one.say(assistant("so", 100), user("and then", 100))
    assert nobody.asked == 16
    assert starts == sorted(starts)
    assert len(set(starts)) == 3  # half of the window goes at a time


async def test_what_is_cut_again_is_not_counted_again() -> None:
    one = unsummarised()
    assert (await NOBODY.decide(one.request())).removed["truncate"] > 0
    one.say(assistant("so", 100), user("and then", 100))
    assert (await NOBODY.decide(one.request())).removed == {}


async def test_a_summary_ends_the_cut_that_stood_in_for_it() -> None:
    one = unsummarised()
    start = (await NOBODY.decide(one.request())).view.start
    one.say(assistant("so", 100), user("and then", 100))
    request = one.request()
    request.state.remember_baseline(summed_up(request, 8))
    decision = await NOBODY.decide(request)
    assert decision.view.summary is not None
    assert decision.view.start != start


async def test_a_branch_makes_a_cut_of_its_own() -> None:
    one = unsummarised()
    await NOBODY.decide(one.request())
    assert one.thread.makeshift is not None
    assert one.thread.fork(6).makeshift is None


# ---------------------------------------------------------------------- replay
async def test_the_same_request_is_decided_once() -> None:
    one = talk()
    first = await NOBODY.decide(one.request())
    again = await NOBODY.decide(one.request(budget={"factor": 2.5}))
    assert (again.view, again.labels) == (first.view, ["replayed", "cut"])
    assert not again.baselines


async def test_a_step_of_another_process_is_found_where_the_request_may_be_a_retry() -> None:
    stored = recipes.encode(View(14), ("cut",))

    async def find(_request: Pass) -> bytes:
        return stored

    driver = windowing(NoSummaries(), find)
    assert (await driver.decide(talk().request(known=True))).view == View(14)
    assert (await driver.decide(talk().request())).view != View(14)


async def test_a_step_whose_summary_is_gone_is_decided_anew() -> None:
    request = talk().request()
    row = summed_up(request, 10)
    request.state.remember_step(request.key, row.recipe)
    request.state.summaries.clear()
    assert (await NOBODY.decide(request)).labels == ["cut"]


async def test_a_replayed_view_that_is_over_by_now_says_so() -> None:
    one = talk(4)
    await NOBODY.decide(one.request())
    assert (await NOBODY.decide(one.request(budget={"factor": 2.0}))).over_budget


async def test_another_preamble_or_tool_set_is_another_request() -> None:
    one = talk()
    await NOBODY.decide(one.request())
    one.preamble = (system("be kind"),)
    assert "replayed" not in (await NOBODY.decide(one.request())).labels
    assert "replayed" not in (await NOBODY.decide(one.request(budget={"overhead": 30}))).labels


# ---------------------------------------------------------------------- where a request starts
def test_a_thread_without_baselines_starts_whole() -> None:
    assert NOBODY.starting_view(talk().request()) == View()


def test_the_deepest_cut_counts() -> None:
    request = talk().request()
    for start in (4, 10, 6):
        request.state.remember_baseline(cut(request, start))
    assert NOBODY.starting_view(request).start == 10


def test_a_cut_belongs_to_its_policy_a_summary_to_everybody() -> None:
    request = talk().request()
    request.state.remember_baseline(cut(request, 10, policy=b"another"))
    assert NOBODY.starting_view(request).is_whole
    request.state.remember_baseline(summed_up(request, 4))
    assert NOBODY.starting_view(request).start == 4


def test_the_newest_summary_counts_more_than_a_deeper_cut_on_an_older_one() -> None:
    request = talk().request()
    older = summed_up(request, 4)
    newer = summed_up(request, 8)
    deeper = View(12, (), as_summary(request.state.summaries[bytes([4]) * 16]))
    request.state.remember_baseline(older)
    request.state.remember_baseline(newer)
    request.state.remember_baseline(cut(request, 12, recipe=recipes.encode(deeper), summary=older.summary))
    assert NOBODY.starting_view(request).start == 8


def test_what_another_branch_replaced_is_not_ours() -> None:
    one = talk()
    request = one.request()
    request.state.remember_baseline(cut(request, 10))
    branch = Talk(*exchanges(4), user("something else", 10), assistant("so", 10), user("and now", 10), **LIMITED)
    branch.state.baselines = request.state.baselines
    assert NOBODY.starting_view(branch.request()).is_whole


def test_a_branch_that_goes_back_behind_a_cut_starts_before_it() -> None:
    one = talk()
    request = one.request()
    request.state.remember_baseline(cut(request, 4))
    request.state.remember_baseline(cut(request, 16, recipe=recipes.encode(View(16))))
    back = Talk(*exchanges(4), **LIMITED)
    back.state.baselines = request.state.baselines
    assert NOBODY.starting_view(back.request()).start == 4


def test_a_baseline_that_lacks_what_the_request_ends_with_is_left_alone() -> None:
    """It was made for a continuation: here the last message is the very one it replaced."""
    one = talk(4)
    request = one.request()
    request.state.remember_baseline(cut(request, 9))
    assert NOBODY.starting_view(request).is_whole


def test_a_baseline_that_clipped_what_the_request_ends_with_is_left_alone() -> None:
    request = talk(4).request()
    clipped = View(2, substitutes={8: Substitute("and", 5)})
    request.state.remember_baseline(cut(request, 9, recipe=recipes.encode(clipped)))
    assert NOBODY.starting_view(request).is_whole


def test_a_summary_that_was_erased_is_no_place_to_start() -> None:
    request = talk().request()
    request.state.remember_baseline(summed_up(request, 8))
    request.state.summaries.clear()
    assert NOBODY.starting_view(request).is_whole


def test_a_call_that_was_abandoned_since_is_left_out_of_a_cut_view() -> None:
    one = talk(4)
    request = one.request()
    request.state.remember_baseline(cut(request, 4))
    one.say(call("1", 10), user("never mind", 10))
    assert positions(one.thread.history, NOBODY.starting_view(one.request())) == [4, 5, 6, 7, 8, 10]


# ---------------------------------------------------------------------- after a refusal
async def shrunk(one: Talk, target: int) -> tuple[Pass, Decision, Decision | None]:
    """Decide, then make the view smaller."""
    request = one.request()
    decision = await NOBODY.decide(request)
    return request, decision, await NOBODY.shrink(request, decision, target)


async def test_a_refused_view_is_cut_to_the_target_and_no_further() -> None:
    request, first, smaller = await shrunk(talk(max_tokens=None), 70)
    assert first.view.is_whole
    assert smaller is not None
    assert sent(request, smaller) == [10, 11, 12, 13, 14, 15, 16]
    assert smaller.labels == ["cut"]
    assert [row.position for row in smaller.baselines] == [9]


async def test_the_smaller_view_is_what_a_retry_gets() -> None:
    one = talk(max_tokens=None)
    _, _, smaller = await shrunk(one, 70)
    assert smaller is not None
    assert (await NOBODY.decide(one.request())).view == smaller.view


async def test_work_of_the_current_turn_goes_before_anything_is_clipped() -> None:
    rounds = [m for n in range(6) for m in (call(str(n), 10), result(str(n), tokens=10))]
    request, _, smaller = await shrunk(Talk(user("do it", 10), *rounds, max_tokens=None), 60)
    assert smaller is not None
    assert sent(request, smaller) == [0, 9, 10, 11, 12]
    assert not smaller.view.substitutes


async def test_old_turns_go_even_where_what_is_protected_is_too_much_by_itself() -> None:
    """And only then is something clipped; nothing that could go stands beside a text that was cut short."""
    rounds = [call("1", 10), result("1", "word " * 300)]
    one = Talk(*exchanges(5), user("do it", 10), *rounds, max_tokens=None)
    request, _, smaller = await shrunk(one, 150)
    assert smaller is not None
    assert sent(request, smaller) == [10, 11, 12]
    assert smaller.labels == ["cut", "clipped"]
    assert smaller.sent.tokens <= 150


async def test_a_summary_goes_before_anything_is_clipped_where_that_is_enough() -> None:
    one = Talk(*exchanges(2), user("long", 90), call("1", 4), result("1", "word " * 5), max_tokens=None)
    request = one.request()
    request.state.remember_baseline(summed_up(request, 4, tokens=20))
    decision = await NOBODY.decide(request)
    assert decision.view.summary is not None
    smaller = await NOBODY.shrink(request, decision, decision.sent.tokens - 1)
    assert smaller is not None
    assert (smaller.view, smaller.labels, smaller.baselines) == (View(4), ["cut"], [])


async def test_what_the_user_said_last_is_not_clipped_unasked() -> None:
    one = Talk(*exchanges(5), user("word " * 300), max_tokens=None)
    request, _, smaller = await shrunk(one, 100)
    assert smaller is not None
    assert sent(request, smaller) == [10]
    assert not smaller.view.substitutes


async def test_nothing_smaller_is_possible() -> None:
    assert (await shrunk(Talk(user("word " * 300), max_tokens=None), 100))[2] is None


async def test_a_clipped_view_is_no_baseline() -> None:
    _, _, smaller = await shrunk(Talk(user("do it", 10), call("1"), result("1", "word " * 300), max_tokens=None), 150)
    assert smaller is not None
    assert smaller.view.substitutes
    assert not smaller.baselines


@given(moves(), st.integers(1, 400))
def test_whatever_was_refused_the_next_is_smaller_and_ends_alike(script: list[Move], target: int) -> None:
    one = Talk(*acceptable(script), max_tokens=None)
    request = one.request()
    view = NOBODY.starting_view(request)
    decision = Decision(view, before(request), view.size(request.history), [])
    smaller = finished(NOBODY.shrink(request, decision, target))  # type: ignore[arg-type]
    if smaller is not None:
        assert smaller.sent.tokens < decision.sent.tokens
        assert smaller.sent == smaller.view.size(request.history)
        kept = positions(request.history, smaller.view)
        last_user = request.history.outline.last_user
        assert len(request.history) - 1 in kept
        assert last_user is None or last_user in kept
