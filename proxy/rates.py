"""Bounds how many requests each tenant has under way in this process; it knows nothing of what they ask for."""

from collections import Counter
from typing import Any

from transom.proxy.config.settings import Tenant
from transom.proxy.errors import RateLimited

__all__ = ["TenantRequests"]

_STATE = "tenant_counted"


class TenantRequests:
    """The requests under way, by tenant. A tenant's `limits.in_flight` may change at any time (a reload)."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()

    def begin(self, tenant: Tenant, state: dict[str, Any]) -> None:
        """Count a request, and note that in its `scope["state"]`; raises RateLimited over the tenant's limit."""
        if tenant.in_flight is not None and self._under_way[tenant.name] >= tenant.in_flight:
            raise RateLimited
        self._under_way[tenant.name] += 1
        state[_STATE] = tenant.name

    def end(self, state: dict[str, Any]) -> None:
        """Take a request out again, if it was counted."""
        name = state.pop(_STATE, None)
        if name is not None:
            self._under_way[name] -= 1
