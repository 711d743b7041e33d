"""Keep a tenant's summaries within `summary_tokens_per_day`: what they cost in the last 24 hours, counted by the hour.

It knows what this process has spent since it started, by the providers' own figures. A call under way counts as what
it may come to, so that calls made at the same time share what is left.
"""

import asyncio
import time
from collections.abc import Callable

from transom.proxy.config.settings import Tenant
from transom.proxy.folding import FoldJob
from transom.proxy.summaries import CallModel, SummaryFailed, SummaryReply

HOUR_S = 3_600
HOURS = 24


class Allowance:
    """A `CallModel` that makes no call a tenant has no tokens left for; one for the whole process."""

    def __init__(
        self, call: CallModel, count: Callable[[str], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call, self._count, self._clock = call, count, clock
        self._spent: dict[str, dict[int, int]] = {}  # tenant -> hour -> tokens
        self._short: dict[str, tuple[int, int]] = {}  # tenant -> hour and limit at which a call was refused

    def affords(self, job: FoldJob) -> bool:
        """Tell whether a summary may be begun; after a refusal none is before the next hour."""
        tenant = job.request.conversation.caller.tenant
        most = tenant.summary_tokens_per_day
        if most is None:
            return True
        return self._short.get(tenant.name) != (self._hour(), most) and sum(self._of(tenant).values()) < most

    async def __call__(self, job: FoldJob, instruction: str, record: str, limit: int) -> SummaryReply:
        """Make the call.

        Raises SummaryFailed where the tenant's tokens do not suffice for what is sent and the longest answer.
        """
        tenant = job.request.conversation.caller.tenant
        expected = 0
        if tenant.summary_tokens_per_day is not None:
            expected = limit + await asyncio.to_thread(self._count, instruction + record)
        hour = self._take(tenant, expected)
        reply = await self._call(job, instruction, record, limit)
        cost = reply.cost
        if cost is None:
            cost = expected if reply.failure is None else 0
        spent = self._of(tenant)
        if hour in spent:
            spent[hour] += cost - expected
        return reply

    def _take(self, tenant: Tenant, tokens: int) -> int:
        """Set tokens aside; return the hour they count in."""
        hour, spent, most = self._hour(), self._of(tenant), tenant.summary_tokens_per_day
        if most is not None and sum(spent.values()) + tokens > most:
            self._short[tenant.name] = (hour, most)
            raise SummaryFailed("budget", "summary_tokens_per_day does not suffice")
        spent[hour] = spent.get(hour, 0) + tokens
        return hour

    def _of(self, tenant: Tenant) -> dict[int, int]:
        """Return what a tenant spent in each of the last hours."""
        spent, first = self._spent.setdefault(tenant.name, {}), self._hour() - HOURS
        for hour in [hour for hour in spent if hour < first]:
            del spent[hour]
        return spent

    def _hour(self) -> int:
        return int(self._clock() // HOUR_S)
