"""What each tenant may have under way, and what its summaries may cost; in this process, and in memory only."""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from transom.proxy.config.settings import Tenant
from transom.proxy.errors import RateLimited

__all__ = ["SummaryTokens", "TenantRequests"]

DAY_S = 86_400.0
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


class SummaryTokens:
    """The tokens that each tenant's summaries have cost within the last 24 hours."""

    __slots__ = ("_clock", "_spent")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, deque[tuple[float, int]]] = {}

    def spend(self, tenant: str, tokens: int) -> None:
        """Add what a call has cost."""
        self._spent.setdefault(tenant, deque()).append((self._clock(), tokens))

    def left(self, tenant: Tenant) -> bool:
        """Tell whether a tenant may have another summary by its `limits.summary_tokens_per_day`."""
        most, spent = tenant.summary_tokens_per_day, self._spent.get(tenant.name, deque())
        while spent and self._clock() - spent[0][0] >= DAY_S:
            spent.popleft()
        return most is None or sum(tokens for _, tokens in spent) < most
