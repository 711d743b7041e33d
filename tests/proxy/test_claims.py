"""One process's claims on threads: given back once nobody needs them, kept alive while somebody does."""

import asyncio

import pytest

from transom.proxy import claims
from transom.proxy.claims import LEASE_S, Claims, unrivalled
from transom.storage.store import StorageError, StorageTimeout


class Leases:
    """Keeps a log of what was asked."""

    def __init__(self, *, ours: bool = True) -> None:
        self.ours, self.log = ours, list[str]()
        self.failing: StorageError | None = None
        self.holders: set[str] = set()
        self.gate: asyncio.Event | None = None

    async def lease(self, _session: bytes, root: bytes, holder: str, seconds: float) -> bool:
        assert seconds == LEASE_S
        self.log.append(f"lease {root.decode()}")
        self.holders.add(holder)
        if self.gate is not None:
            await self.gate.wait()
        if self.failing is not None:
            raise self.failing
        return self.ours

    async def release(self, _session: bytes, root: bytes, holder: str) -> None:
        self.log.append(f"release {root.decode()}")
        self.holders.add(holder)
        if self.failing is not None:
            raise self.failing


async def test_a_claim_is_given_back() -> None:
    leases = Leases()
    async with Claims(leases).claim(b"s", b"root") as ours:
        assert ours
        assert leases.log == ["lease root"]
    assert leases.log == ["lease root", "release root"]
    assert len(leases.holders) == 1


async def test_what_others_hold_is_not_given_back() -> None:
    leases = Leases(ours=False)
    async with Claims(leases).claim(b"s", b"root") as ours:
        assert not ours
    assert leases.log == ["lease root"]


async def test_branches_of_a_thread_hold_it_together() -> None:
    leases = Leases()
    held = Claims(leases)
    async with held.claim(b"s", b"root"):
        async with held.claim(b"s", b"root"), held.claim(b"s", b"other"):
            pass
        assert leases.log[-1] == "release other"
        assert "release root" not in leases.log
    assert leases.log[-1] == "release root"


async def test_two_processes_are_two_holders() -> None:
    leases = Leases()
    async with Claims(leases).claim(b"s", b"root"), Claims(leases).claim(b"s", b"root"):
        assert len(leases.holders) == 2


async def test_a_claim_outlives_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed holds a thread for some seconds; whoever waits for a summary, as long as that takes."""
    assert 2 * claims.PROLONG_S < LEASE_S
    monkeypatch.setattr(claims, "PROLONG_S", 0.001)
    leases = Leases()
    async with Claims(leases).claim(b"s", b"root"):
        while len(leases.log) < 4:
            await asyncio.sleep(0.001)
        leases.failing = StorageTimeout("lease", "")
        while len(leases.log) < 8:
            await asyncio.sleep(0.001)
    ended = list(leases.log)
    await asyncio.sleep(0.01)
    assert leases.log == ended
    assert ended[-1] == "release root"


async def test_a_storage_that_fails_is_told_of() -> None:
    leases = Leases()
    leases.failing = StorageTimeout("lease", "")
    with pytest.raises(StorageTimeout):
        async with Claims(leases).claim(b"s", b"root"):
            raise AssertionError


async def test_a_claim_that_is_given_up_half_way_is_given_back() -> None:
    leases = Leases()
    leases.gate = asyncio.Event()

    async def claim() -> None:
        async with Claims(leases).claim(b"s", b"root"):
            raise AssertionError

    task = asyncio.create_task(claim())
    while not leases.log:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert leases.log == ["lease root", "release root"]


async def test_without_rivals_there_is_nothing_to_claim() -> None:
    async with unrivalled(b"s", b"root") as ours:
        assert ours
