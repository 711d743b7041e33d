from typing import Any

import pytest

from transom.proxy.config.load import from_mapping
from transom.proxy.config.settings import Tenant, compile_settings
from transom.proxy.errors import RateLimited
from transom.proxy.rates import TenantRequests


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
