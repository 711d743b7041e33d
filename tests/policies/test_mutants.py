"""The invariants' checks are worth something only if they notice a broken rule: each of these breaks one."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.policies import clients
from tests.policies.builders import Session, Writer
from tests.policies.oracle import Violation
from transom.policies import compress, truncate
from transom.policies.history import History
from transom.policies.limits import Limits
from transom.policies.protection import Protection
from transom.policies.trimmer import TrimRequest, TrimResult
from transom.policies.turns import Group, Outline
from transom.policies.view import Size, Summary, View

MOST_EXAMPLES = 500
Hunt = tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]
Patch = Callable[[object, str, object], None]

GOES_ON: Hunt = (clients.goes_on, clients.TIGHT_GROWING)
IS_TOLD_MUCH: Hunt = (clients.goes_on, clients.LONG_WINDED)
ANSWERS_LATE: Hunt = (clients.answers_late, clients.TIGHT_LATE)
BREAKS_PAIRS: Hunt = (clients.breaks_pairs, clients.TIGHT_BROKEN)
ASKS_TWICE: Hunt = (clients.asks_twice, clients.TIGHT_GROWING)
SAYS_MORE: Hunt = (clients.says_more, clients.TIGHT_LONGER)

covers, broken = Protection.covers, Protection.broken
stays, foldable, boundary = compress.stays, compress.foldable, compress.fold_boundary
positions, size, without, folded = View.positions, View.size, View.without, View.folded
victims, old, trim = truncate._victims, truncate._old, truncate.Truncate.trim


def unprotected(spared: Callable[[Protection, Group], bool]) -> Callable[[Protection, Group], bool]:
    """Make a rule of protection that leaves some groups out."""
    return lambda self, group: covers(self, group) and not spared(self, group)


def results_not_joined(patch: Patch) -> None:
    def append(self: Outline, position: int, call_id: str) -> None:
        self._orphans[position] = None
        self._start("orphan", position)

    patch(Outline, "_append_result", append)


def results_joined_to_the_oldest_call(patch: Patch) -> None:
    append = Outline._append_result

    def reversed_append(self: Outline, position: int, call_id: str) -> None:
        self._waiting.get(call_id, []).reverse()
        append(self, position, call_id)
        self._waiting.get(call_id, []).reverse()

    patch(Outline, "_append_result", reversed_append)


def last_user_unprotected(patch: Patch) -> None:
    patch(Protection, "covers", unprotected(lambda self, g: g.kind == "user" and not self._is_last(g)))


def last_message_unprotected(patch: Patch) -> None:
    patch(Protection, "_is_last", lambda self, group: False)


def open_group_unprotected(patch: Patch) -> None:
    patch(Protection, "covers", unprotected(lambda self, g: self._outline.is_open(g)))


def later_system_unprotected(patch: Patch) -> None:
    patch(Protection, "covers", unprotected(lambda self, g: g.kind == "system" and not self._is_last(g)))


def order_reversed(patch: Patch) -> None:
    patch(View, "positions", lambda self, length: iter(list(positions(self, length))[::-1]))


def newest_go_first(patch: Patch) -> None:
    patch(truncate, "_victims", lambda *asked: reversed(list(victims(*asked))))


def trim_to_ignored(patch: Patch) -> None:
    patch(Limits, "low_water", lambda self, size, share: self)


def newest_iterations_cut_for_the_mark(patch: Patch) -> None:
    patch(truncate, "_victims", lambda *asked: ((bundle, True) for bundle, _ in victims(*asked)))


def turns_rest_left_behind(patch: Patch) -> None:
    patch(truncate, "_old", lambda free, current: (list(g.members) for g in free if g.turn < current))


def turn_0_cut_in_parts(patch: Patch) -> None:
    def older(self: Protection) -> frozenset[int]:
        outline = self._outline
        return broken(self) & frozenset(outline.broken())

    def parts(free: list[Group], current: int) -> Iterator[list[int]]:
        yield from (list(g.members) for g in free if g.turn == 0 < current)
        yield from old([g for g in free if g.turn], current)

    patch(Protection, "broken", older)
    patch(truncate, "_old", parts)


def cut_for_a_limit_out_of_reach(patch: Patch) -> None:
    patch(Limits, "reachable", lambda self, floor: self)


def summary_kept_at_all_costs(patch: Patch) -> None:
    patch(Protection, "base", lambda self, view, limits: view)


def summary_left_out_of_each_cut(patch: Patch) -> None:
    patch(Protection, "base", lambda self, view, limits: view.without_summary())


def items_ignored(patch: Patch) -> None:
    patch(Limits, "hold", lambda self, size: self.tokens is None or size.tokens <= self.tokens)


def preamble_not_counted(patch: Patch) -> None:
    def less(self: View, history: History) -> Size:
        whole = size(self, history)
        return Size(whole.tokens - history.preamble_tokens, whole.items - history.preamble_items)

    patch(View, "size", less)


def batch_split(patch: Patch) -> None:
    patch(View, "without", lambda self, removed, broken: without(self, sorted(removed)[:-1], broken))


def broken_kept_after_a_cut(patch: Patch) -> None:
    patch(Protection, "broken", lambda self: frozenset())


def scattered_groups_ignored(patch: Patch) -> None:
    patch(Outline, "scattered", lambda self: iter(()))


def pinned_folded(patch: Patch) -> None:
    def fewer(request: TrimRequest, guard: Protection, upto: int) -> list[int]:
        return [p for p in stays(request, guard, upto) if p not in guard.pinned()]

    patch(compress, "stays", fewer)


def one_turn_fewer_kept(patch: Patch) -> None:
    def later(request: TrimRequest, guard: Protection, limits: Limits) -> int | None:
        fewer = max(1, request.policy.keep_recent_turns - 1)
        policy = request.policy.model_copy(update={"keep_recent_turns": fewer})
        return boundary(replace(request, policy=policy), guard, limits)

    patch(compress, "fold_boundary", later)


def folded_past_an_open_group(patch: Patch) -> None:
    def everywhere(request: TrimRequest) -> Iterator[int]:
        outline = request.history.outline
        yield from (group.members[-1] + 1 for group in outline.iterations(outline.current_turn))

    patch(compress, "_fill_places", everywhere)


def what_was_cut_not_folded(patch: Patch) -> None:
    def visible(view: View, kept: list[int], upto: int) -> list[int]:
        return [p for p in foldable(view, kept, upto) if view.keeps(p)]

    patch(compress, "foldable", visible)


def two_summaries(patch: Patch) -> None:
    def both(self: View, summary: Summary, *rest: Any) -> View:
        text = f"{self.summary.text}\n{summary.text}" if self.summary else summary.text
        return folded(self, replace(summary, text=text), *rest)

    patch(View, "folded", both)


def any_summary_accepted(patch: Patch) -> None:
    patch(Writer, "accepts", lambda *asked: True)


def no_room_left(patch: Patch) -> None:
    patch(compress, "_worthwhile", lambda *asked: True)


def history_mutated(patch: Patch) -> None:
    async def forget(self: truncate.Truncate, request: TrimRequest) -> TrimResult:
        result = await trim(self, request)
        del request.history.messages[: result.view.start - 1]
        return result

    patch(truncate.Truncate, "trim", forget)


def another_view_each_time(patch: Patch) -> None:
    turn = itertools.cycle([0.4, 0.9])
    low_water = Limits.low_water
    patch(Limits, "low_water", lambda self, size, share: low_water(self, size, next(turn)))


def nothing_remembered(patch: Patch) -> None:
    patch(Session, "starting_view", lambda self, history, policy: View())


@pytest.mark.parametrize(
    ("mutate", "hunt"),
    [
        (results_not_joined, GOES_ON),
        (results_joined_to_the_oldest_call, ANSWERS_LATE),
        (last_user_unprotected, GOES_ON),
        (last_message_unprotected, GOES_ON),
        (open_group_unprotected, GOES_ON),
        (later_system_unprotected, GOES_ON),
        (order_reversed, GOES_ON),
        (newest_go_first, GOES_ON),
        (trim_to_ignored, GOES_ON),
        (newest_iterations_cut_for_the_mark, GOES_ON),
        (turns_rest_left_behind, GOES_ON),
        (turn_0_cut_in_parts, GOES_ON),
        (cut_for_a_limit_out_of_reach, GOES_ON),
        (summary_kept_at_all_costs, GOES_ON),
        (summary_left_out_of_each_cut, GOES_ON),
        (items_ignored, GOES_ON),
        (preamble_not_counted, GOES_ON),
        (batch_split, GOES_ON),
        (broken_kept_after_a_cut, BREAKS_PAIRS),
        (scattered_groups_ignored, ANSWERS_LATE),
        (pinned_folded, GOES_ON),
        (one_turn_fewer_kept, GOES_ON),
        (folded_past_an_open_group, GOES_ON),
        (what_was_cut_not_folded, GOES_ON),
        (two_summaries, GOES_ON),
        (any_summary_accepted, IS_TOLD_MUCH),
        (no_room_left, GOES_ON),
        (history_mutated, GOES_ON),
        (another_view_each_time, ASKS_TWICE),
        (nothing_remembered, SAYS_MORE),
    ],
)
def test_the_checks_notice(mutate: Callable[[Patch], None], hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    does, strategies = hunt
    quick = settings.get_profile("policies")
    bounded = settings(quick, max_examples=MOST_EXAMPLES, phases=[Phase.generate], report_multiple_bugs=False)
    hunting = bounded(given(*strategies)(does))
    mutate(monkeypatch.setattr)
    with pytest.raises(Violation):
        hunting()
