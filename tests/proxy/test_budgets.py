"""What one request is held to: two limits, the answer's room, what stands beside the messages, and what keys it has."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.view import Size
from transom.proxy.budgets import Budget, budget_for, cut_hash, policy_hash
from transom.proxy.config.settings import Model, Route

MODEL = Model(name="m", provider="direct", upstream_model="m")


def route(model: Model = MODEL, **options: Any) -> Route:
    return Route(model, "p", Policy.model_validate({"strategy": "context_window"} | options))


def held(options: dict[str, Any] | None = None, **more: Any) -> Budget:
    """Return the budget of a plain request, changed as told."""
    plain: dict[str, Any] = {"window": None, "overhead": 0, "output_limit": None, "factor": 1.0, "note": Size(0, 0)}
    return budget_for(route(**options or {}), **plain | more)


# ---------------------------------------------------------------------- the two limits
def test_the_policys_limit_bounds_messages_alone() -> None:
    assert held({"max_tokens": 4000}, overhead=3000, output_limit=9000).limits == Limits(4000, None)


def test_the_window_bounds_messages_tools_and_answer() -> None:
    assert held(window=32_768, overhead=3000).limits.tokens == 32_768 - 3000 - 4096


def test_both_hold() -> None:
    assert held({"max_tokens": 4000}, window=8192, overhead=3000).limits.tokens == 8192 - 4096 - 3000
    assert held({"max_tokens": 500}, window=8192, overhead=3000).limits.tokens == 500


def test_auto_means_the_window_alone() -> None:
    assert held({"max_tokens": "auto"}, window=10_000, output_limit=1000).limits.tokens == 9000
    assert held({"max_tokens": "auto"}).limits.tokens is None


def test_the_answers_room_is_the_requests_own_where_it_says() -> None:
    assert held({"reserve_tokens": 2000}, window=10_000).reserve == 2000
    assert held({"reserve_tokens": 2000}, window=10_000, output_limit=100).reserve == 100
    assert held({"reserve_tokens": 2000}, output_limit=10**400).reserve == 10**400


@pytest.mark.parametrize("output_limit", [None, 4096, 4097, 10**400])
def test_no_answers_room_leaves_messages_none(output_limit: int | None) -> None:
    """Clients ask small models for more than they can say; a fixed max_tokens is common."""
    assert held(window=4096, output_limit=output_limit).limits.tokens == 2048


def test_tools_larger_than_the_window_leave_no_room_but_no_debt() -> None:
    budget = held(window=4096, overhead=9000)
    assert budget.shown == 0
    assert budget.reachable(Size(40, 1), Size(40, 1)) == Limits(None, None)


def test_a_model_that_needs_more_tokens_gets_fewer_of_ours() -> None:
    assert held({"max_tokens": 4000}, factor=2.5).limits.tokens == 1600
    assert held(window=20_000, overhead=3000, output_limit=1000, factor=2.5).limits.tokens == 19_000 / 2.5 - 3000


def test_a_written_limit_holds_by_our_count_too() -> None:
    assert held({"max_tokens": 4000}, factor=0.8).limits.tokens == 4000
    assert held(window=5000, output_limit=1000, factor=0.8).limits.tokens == 5000


def test_note_and_recall_are_set_aside() -> None:
    policy = {"strategy": ["truncate", "recall"], "max_tokens": 4000, "max_context_items": 20, "recall_tokens": 512}
    assert held(policy, note=Size(50, 1)).limits == Limits(4000 - 512 - 50, 20 - 2)


def test_a_limit_that_protected_messages_exceed_is_left_out() -> None:
    budget = held({"max_tokens": 4000, "max_context_items": 20}, window=2000, overhead=500, output_limit=1000)
    assert budget.limits.tokens == 500
    assert budget.reachable(Size(501, 3), Size(501, 3)) == Limits(4000, 20)
    assert budget.reachable(Size(4001, 21), Size(4001, 21)) == Limits(None, None)


def test_room_for_recall_is_given_up_before_a_limit_is() -> None:
    budget = Budget(1000, None, 0, 0, 5, spare=Size(400, 1))
    assert budget.limits == budget.reachable(Size(600, 4), Size(600, 4)) == Limits(600, 4)
    assert budget.most_sent == budget.reachable(Size(601, 4), Size(601, 4)) == Limits(1000, 5)
    assert budget.reachable(Size(100, 5), Size(100, 5)) == Limits(1000, 5)
    assert budget.reachable(Size(1001, 5), Size(1001, 5)) == Limits(None, 5)
    assert budget.reachable(Size(100, 6), Size(100, 6)) == Limits(1000, None)


def test_a_summary_stays_away_before_a_limit_is_given_up() -> None:
    budget = Budget(1000, None, 0, 0, 5, spare=Size(400, 1))
    assert budget.reachable(Size(601, 4), Size(500, 3)) == Limits(1000, 5)  # it stands in recall's room
    assert budget.reachable(Size(1001, 6), Size(1000, 5)) == Limits(1000, 5)
    assert budget.reachable(Size(1100, 7), Size(1001, 6)) == Limits()


def test_the_room_for_a_note_is_not() -> None:
    budget = Budget(1000, None, 0, 0, None, note=Size(30, 1), spare=Size(400, 1))
    assert budget.most_sent == budget.reachable(Size(900, 1), Size(900, 1)) == Limits(970)
    assert budget.reachable(Size(500, 1), Size(500, 1)) == Limits(570)
    assert budget.reachable(Size(971, 1), Size(971, 1)) == Limits()


SIZES = st.integers(0, 10**7)


@given(SIZES, st.integers(1, 10**7), SIZES, SIZES, st.floats(0.8, 3))
def test_what_fits_by_our_count_fits_by_the_providers(
    most: int, window: int, reserve: int, overhead: int, factor: float
) -> None:
    tokens = Budget(most, window, reserve, overhead, None, factor).limits.tokens
    assert tokens is not None
    assert tokens >= 0
    assert tokens * factor <= most + 1e-6
    assert tokens == 0 or (tokens + overhead) * factor <= window - reserve + 1e-6


CHANGES: dict[str, Callable[[], tuple[Route, Budget]]] = {
    "policy": lambda: (route(trim_to=0.5), held()),
    "model": lambda: (route(replace(MODEL, name="n")), held()),
    "window": lambda: (route(), held(window=10_000)),
    "reserve": lambda: (route(), held(output_limit=7)),
    "tools": lambda: (route(), held(overhead=3000)),
    "note": lambda: (route(), held(note=Size(50, 1))),
}
SAME: dict[str, Callable[[], tuple[Route, Budget]]] = {
    "factor": lambda: (route(), held(factor=2.0)),
    "waiting": lambda: (route(summary_wait=0), held()),
    "mark": lambda: (route(compact_at=0.5), held()),
    "share": lambda: (route(percent=50), held()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_can_change_bytes_makes_another_decision(change: str) -> None:
    assert policy_hash(*CHANGES[change]()) != policy_hash(route(), held())


@pytest.mark.parametrize("change", SAME)
def test_what_cannot_does_not(change: str) -> None:
    """Above all not the factor: a retry must find what was decided before the model taught us more."""
    assert policy_hash(*SAME[change]()) == policy_hash(route(), held())


def test_a_cut_belongs_to_policy_and_model_whatever_the_rest() -> None:
    assert cut_hash(route()) == cut_hash(route(summary_wait=0))
    assert len({cut_hash(route()), cut_hash(route(trim_to=0.5)), cut_hash(CHANGES["model"]()[0])}) == 3
