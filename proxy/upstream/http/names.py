"""Addresses of names, looked up once for all who ask at the same time; it connects to nothing."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

__all__ = ["Addresses", "Names"]

KEPT_S = 10.0
MOST = 256

Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]  # as `socket.getaddrinfo` has it


class Names:
    """Look names up, and remember the answers for a few seconds: a burst of new connections asks once."""

    def __init__(self) -> None:
        self._lookups: dict[tuple[str, int], tuple[float, asyncio.Task[Addresses]]] = {}

    async def find(self, host: str, port: int) -> Addresses:
        """Return the addresses; raises socket.gaierror, which is not remembered."""
        loop = asyncio.get_running_loop()
        key = (host, port)
        until, lookup = self._lookups.get(key, (0.0, None))
        if lookup is None or loop.time() > until:
            if len(self._lookups) >= MOST:
                self._lookups.clear()
            lookup = loop.create_task(self._ask(key))
            lookup.add_done_callback(_looked_at)
            self._lookups[key] = (loop.time() + KEPT_S, lookup)
        return await asyncio.shield(lookup)

    async def _ask(self, key: tuple[str, int]) -> Addresses:
        loop = asyncio.get_running_loop()
        try:
            return await loop.getaddrinfo(*key, type=socket.SOCK_STREAM)
        except BaseException:
            self._lookups.pop(key, None)
            raise


def _looked_at(lookup: "asyncio.Task[Addresses]") -> None:
    """Take note of a failure that nobody waited for any more."""
    if not lookup.cancelled():
        lookup.exception()
