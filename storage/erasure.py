"""Erasing sessions so that nothing of them is left: rows first, then the bytes; decides nothing about which."""

import asyncio
from collections.abc import Callable, Sequence

from sqlalchemy import BigInteger, Double, bindparam, delete, select
from sqlalchemy.engine import Dialect

from transom.storage.committer import Committer
from transom.storage.driver import Compiled, Cursor, Driver, compile_statement
from transom.storage.hex_type import Hex
from transom.storage.schema import OF_A_SESSION, leases, sessions

PORTION = 8
"""Sessions erased in one transaction: the writer is not kept from the others' turns for long."""

WIPE_PAUSES_S = (0.0, 0.1, 0.5, 2.0)
"""Before each attempt; in between the writer serves others."""


class Erasure:
    """Erases sessions in the writer's thread."""

    def __init__(self, driver: Driver, committer: Committer) -> None:
        self._driver = driver
        self._committer = committer
        dialect = driver.dialect
        number = bindparam("seq", type_=BigInteger)
        statements = [
            delete(leases).where(leases.c.session == bindparam("session", type_=Hex)),
            *(delete(table).where(table.c.session == number) for table in OF_A_SESSION),
            delete(sessions).where(sessions.c.seq == number),
        ]
        self._statements = [compile_statement(statement, dialect) for statement in statements]
        self._claim = _claim(dialect)

    async def erase(self, wanted: Sequence[bytes], unused_since: float = float("inf")) -> list[bytes]:
        """Erase those of the sessions that were not used at `unused_since` or later; return their ids.

        Returns once the erased bytes are gone from SQLite's journal too, as far as no long read is in the way.
        """
        erased: list[bytes] = []
        for start in range(0, len(wanted), PORTION):
            work = self._portion(wanted[start : start + PORTION], unused_since)
            erased += await self._committer.run("erase", work)
        if erased:
            await self.wipe()
        return erased

    async def wipe(self) -> bool:
        """Remove erased bytes from SQLite's journal; false if a long read was in the way, then the next call does."""
        for pause in WIPE_PAUSES_S:
            await asyncio.sleep(pause)
            if await self._committer.run("erase", self._driver.wipe, transaction=False):
                return True
        return False

    def _portion(self, wanted: Sequence[bytes], unused_since: float) -> Callable[[Cursor], list[bytes]]:
        """Return work that erases a few sessions in one transaction."""

        def work(cursor: Cursor) -> list[bytes]:
            erased = []
            for session in wanted:
                cursor.execute(self._claim.sql, self._claim.bind({"session": session, "unused_since": unused_since}))
                found = cursor.fetchone()
                if found is None:
                    continue
                for statement in self._statements:
                    cursor.execute(statement.sql, statement.bind({"session": session, "seq": found[0]}))
                erased.append(session)
            return erased

        return work


def _claim(dialect: Dialect) -> Compiled:
    """Return the look-up that locks a session against new rows, if it is there and due."""
    statement = select(sessions.c.seq).where(
        sessions.c.id == bindparam("session", type_=Hex),
        sessions.c.used_at < bindparam("unused_since", type_=Double),
    )
    return compile_statement(statement.with_for_update(), dialect)
