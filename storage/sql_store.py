"""The store on SQLite and PostgreSQL: puts the writer, the readers and the rarer work behind the port."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

from transom.storage.browse import Browser
from transom.storage.committer import Committer
from transom.storage.database import Database
from transom.storage.driver import Cursor
from transom.storage.erasure import Erasure
from transom.storage.leases import Leases
from transom.storage.lookups import Lookups
from transom.storage.places import Places
from transom.storage.readers import Readers
from transom.storage.retention import Retention
from transom.storage.rows import Batch, FactorRow, Loaded, MessageRow, Place, StepRow
from transom.storage.store import NoObserver, Observer, RetentionResult, SessionFilter, SessionPage


class SqlStore:
    """Implements `transom.storage.store.Store`, where each method is described."""

    def __init__(self, database: Database, observer: Observer | None = None, *, timeout_s: float = 2.0) -> None:
        observer = observer or NoObserver()
        driver = database.driver
        self._database = database
        self._committer = Committer(driver, observer, timeout_s=timeout_s)
        self._readers = Readers(driver, observer, timeout_s=timeout_s)
        self._lookups = Lookups(driver.dialect)
        self._places = Places(driver.dialect)
        self._leases = Leases(driver.dialect)
        self._browser = Browser(database, observer, timeout_s=timeout_s)
        self._erasure = Erasure(driver, self._committer)
        self._retention = Retention(driver.dialect, self._readers, self._erasure)

    @classmethod
    def open(
        cls, url: str, observer: Observer | None = None, *, synchronous: str = "normal", timeout_s: float = 2.0
    ) -> Self:
        """Open the database behind a URL and start its threads; blocks. Raises CannotOpen or a class below it."""
        return cls(Database.open(url, synchronous=synchronous, timeout_s=timeout_s), observer, timeout_s=timeout_s)

    @property
    def secret(self) -> bytes:
        """Return the database's secret."""
        return self._database.secret

    async def load(self, session: bytes, ids: Sequence[bytes], stored: int = 0) -> Loaded:
        """Return what is stored of a thread."""
        return await self._readers.call("load", lambda cursor: self._lookups.load(cursor, session, ids, stored))

    async def step(self, session: bytes, head: bytes, preamble: bytes, policy: bytes) -> StepRow | None:
        """Return the step of this very request."""
        return await self._readers.call(
            "step", lambda cursor: self._lookups.step(cursor, session, head, preamble, policy)
        )

    async def find_session(self, links: Sequence[bytes]) -> tuple[bytes, bytes] | None:
        """Return the first stored link with its newest session."""
        if not links:
            return None
        return await self._readers.call("find_session", lambda cursor: self._lookups.find_session(cursor, links))

    async def thread(self, session: bytes, head: bytes, after: bytes = b"") -> list[MessageRow]:
        """Return the messages up to `head`."""
        return await self._readers.call("thread", lambda cursor: self._lookups.thread(cursor, session, head, after))

    async def place(self, session: bytes, parent: bytes | None, head: bytes) -> Place:
        """Return what is stored where a turn is to be added."""
        return await self._readers.call("place", lambda cursor: self._places.find(cursor, session, parent, head))

    async def factors(self) -> dict[str, FactorRow]:
        """Return the token ratios by model."""
        return await self._readers.call("factors", self._lookups.factors)

    def write(self, batch: Batch) -> "asyncio.Future[None]":
        """Hand rows to the writer."""
        return self._committer.write(batch)

    async def lease(self, session: bytes, root: bytes, holder: str, seconds: float) -> bool:
        """Take or prolong a lease."""
        return await self._committer.run("lease", self._leases.take(session, root, holder, seconds))

    async def release(self, session: bytes, root: bytes, holder: str) -> None:
        """Give a lease back."""
        await self._committer.run("release", self._leases.release(session, root, holder))

    async def sessions(self, wanted: SessionFilter, limit: int, after: str | None = None) -> SessionPage:
        """List sessions."""
        return await self._browser.sessions(wanted, limit, after)

    async def session(self, session: bytes) -> dict[str, Any] | None:
        """Return one session."""
        return await self._browser.session(session)

    async def requests(self, any_id: str) -> list[dict[str, Any]]:
        """Return requests by request or completion id."""
        return await self._browser.requests(any_id)

    def export(self, session: bytes) -> AsyncIterator[bytes]:
        """Yield a session as JSON lines."""
        return self._browser.export(session)

    async def delete_session(self, session: bytes) -> bool:
        """Erase a session."""
        return bool(await self._erasure.erase([session]))

    async def delete_user(self, tenant: str, user: bytes) -> list[bytes]:
        """Erase a user's sessions."""
        return await self._erasure.erase(await self._browser.user_sessions(tenant, user))

    async def retain(
        self, now: float, days: float | None, tenants: Mapping[str, float | None], *, force: bool = False
    ) -> RetentionResult:
        """Erase what is too old."""
        return await self._retention.run(now, days, tenants, force=force)

    async def stats(self) -> dict[str, int]:
        """Return row counts and the size."""
        size = await self._readers.call("stats", self._database.driver.size)
        return {**await self._browser.stats(), "bytes": size}

    async def ping(self) -> None:
        """Raise unless the database answers and is still the one that was opened."""

        def work(cursor: Cursor) -> None:
            self._database.driver.check()
            self._lookups.ping(cursor)

        await self._readers.call("ping", work)

    async def close(self) -> None:
        """Commit what is queued and let go of everything."""
        await asyncio.to_thread(self._committer.close)
        await asyncio.to_thread(self._readers.close)
        await self._browser.close()
        self._database.close()
