"""Claims on threads, so that of several processes one folds a thread: a short lease, prolonged while the fold lasts.

Short, since whoever is killed cannot give it back: others are kept from folding for some seconds, not for as long as a
summary may take.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from transom.storage.store import StorageError

LEASE_S = 6.0
PROLONG_S = 2.0


class Leases(Protocol):
    """The part of a store that claims need."""

    async def lease(self, session: bytes, root: bytes, holder: str, seconds: float) -> bool: ...
    async def release(self, session: bytes, root: bytes, holder: str) -> None: ...


class Claims:
    """The claims of one process."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._holder = secrets.token_hex(8)
        self._held: Counter[tuple[bytes, bytes]] = Counter()  # branches of a thread have its first message in common

    @asynccontextmanager
    async def claim(self, session: bytes, root: bytes) -> AsyncIterator[bool]:
        """Hold the thread that begins with `root`, and say whether it is ours; no other process has it meanwhile.

        Raises StorageError where that cannot be known.
        """
        key = (session, root)
        self._held[key] += 1
        ours, prolonging = True, None
        try:
            ours = await self._leases.lease(*key, self._holder, LEASE_S)
            if ours:
                prolonging = asyncio.create_task(self._prolong(*key))
            yield ours
        finally:
            if prolonging is not None:
                prolonging.cancel()
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                if ours:  # or not known, since it was interrupted
                    with suppress(StorageError):
                        await self._leases.release(*key, self._holder)

    async def _prolong(self, session: bytes, root: bytes) -> None:
        while True:
            await asyncio.sleep(PROLONG_S)
            with suppress(StorageError):
                await self._leases.lease(session, root, self._holder, LEASE_S)


@asynccontextmanager
async def unrivalled(_session: bytes, _root: bytes) -> AsyncIterator[bool]:
    """Claim a thread where no other process folds."""
    yield True
