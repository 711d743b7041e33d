"""Which sessions are due for erasure by age; when a run takes place, and what a wait means, is the caller's affair."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Double, Text, bindparam, func, literal_column, select
from sqlalchemy.engine import Dialect

from transom.storage.driver import Cursor, compile_statement
from transom.storage.erasure import Erasure
from transom.storage.readers import Readers
from transom.storage.schema import sessions
from transom.storage.store import RetentionResult

DAY = 86_400.0
CAUTIOUS_FROM = 100
"""From this many sessions on, a run that would erase more than half of them waits: the clock may be wrong."""
PAGE = 1000


class Retention:
    """Erases what nobody used for long."""

    def __init__(self, dialect: Dialect, readers: Readers, erasure: Erasure) -> None:
        self._readers = readers
        self._erasure = erasure
        table = sessions
        cutoff = table.c.used_at < bindparam("cutoff", type_=Double)
        tenant = table.c.tenant == bindparam("tenant", type_=Text)
        self._tenants = compile_statement(select(table.c.tenant, func.count()).group_by(table.c.tenant), dialect)
        self._count = compile_statement(select(func.count()).select_from(table).where(tenant, cutoff), dialect)
        after = table.c.seq > bindparam("after")
        page = (
            select(table.c.seq, table.c.id)
            .where(tenant, cutoff, after)
            .order_by(table.c.seq)
            .limit(literal_column(str(PAGE)))
        )
        self._page = compile_statement(page, dialect)

    async def run(
        self, now: float, days: float | None, tenants: Mapping[str, float | None], *, force: bool = False
    ) -> RetentionResult:
        """Erase sessions unused for longer than `days`, or than their tenant's own number; None keeps for ever.

        A session that is used while the run goes on stays. See RetentionResult for a run that waits.
        """
        present = await self._readers.call("retain", self._present)
        cutoffs = {tenant: now - kept * DAY for tenant in present if (kept := tenants.get(tenant, days)) is not None}
        due = 0
        for tenant, cutoff in cutoffs.items():
            due += await self._readers.call("retain", self._due(tenant, cutoff))
        total = sum(present.values())
        if not force and total >= CAUTIOUS_FROM and due * 2 > total:
            return RetentionResult(total, due, [], waits=True)
        erased: list[bytes] = []
        for tenant, cutoff in cutoffs.items():
            erased += await self._erase(tenant, cutoff)
        await self._erasure.wipe()
        return RetentionResult(total, due, erased, waits=False)

    async def _erase(self, tenant: str, cutoff: float) -> list[bytes]:
        """Erase a tenant's sessions, page by page."""
        erased: list[bytes] = []
        after = 0
        while True:
            rows = await self._readers.call("retain", self._page_after(tenant, cutoff, after))
            if not rows:
                return erased
            erased += await self._erasure.erase([bytes.fromhex(row[1]) for row in rows], cutoff)
            after = rows[-1][0]

    def _present(self, cursor: Cursor) -> dict[str, int]:
        """Return the number of sessions by tenant."""
        cursor.execute(self._tenants.sql, self._tenants.bind({}))
        return dict(cursor.fetchall())

    def _due(self, tenant: str, cutoff: float) -> Callable[[Cursor], int]:
        """Return a look-up of how many sessions of a tenant were last used before the cutoff."""

        def work(cursor: Cursor) -> int:
            cursor.execute(self._count.sql, self._count.bind({"tenant": tenant, "cutoff": cutoff}))
            return int(cursor.fetchone()[0])

        return work

    def _page_after(self, tenant: str, cutoff: float, after: int) -> Callable[[Cursor], list[Any]]:
        """Return a look-up of the next due sessions."""

        def work(cursor: Cursor) -> list[Any]:
            cursor.execute(self._page.sql, self._page.bind({"tenant": tenant, "cutoff": cutoff, "after": after}))
            return cursor.fetchall()

        return work
