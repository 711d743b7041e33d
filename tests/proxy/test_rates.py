"""What is counted for tenants, and when it is forgotten."""

from typing import Any

import pytest

from transom.proxy.config.load import from_mapping
from transom.proxy.config.settings import Tenant, compile_settings
from transom.proxy.errors import RateLimited
from transom.proxy.rates import DAY_S, SummaryTokens, TenantRequests


def tenant(**limits: int | None) -> Tenant:
    anonymous = compile_settings(from_mapping({"tenants": {"default": {"limits": limits}}})).anonymous
    assert anonymous is not None
    return anonymous


def test_requests_under_way_are_counted_until_they_end() -> None:
    requests = TenantRequests()
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    one = tenant(in_flight=1)
    requests.begin(one, first)
    with pytest.raises(RateLimited):
        requests.begin(one, second)
    requests.end(second)  # was not counted
    with pytest.raises(RateLimited):
        requests.begin(one, second)
    requests.begin(tenant(), second)  # a reload may lift the limit
    requests.end(first)
    requests.end(first)  # once is enough
    with pytest.raises(RateLimited):
        requests.begin(one, first)
    requests.end(second)
    requests.begin(one, first)


def test_what_summaries_cost_is_forgotten_after_a_day() -> None:
    now = [0.0]
    tokens, one = SummaryTokens(lambda: now[0]), tenant(summary_tokens_per_day=100)
    assert tokens.left(one)
    tokens.spend(one.name, 60)
    assert tokens.left(one)
    now[0] = DAY_S / 2
    tokens.spend(one.name, 40)
    assert not tokens.left(one)
    assert tokens.left(tenant())
    now[0] = DAY_S - 1
    assert not tokens.left(one)
    now[0] = DAY_S
    assert tokens.left(one)
    tokens.spend(one.name, 60)
    assert not tokens.left(one)


def test_no_budget_is_never_left() -> None:
    assert not SummaryTokens().left(tenant(summary_tokens_per_day=0))
