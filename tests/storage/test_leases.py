import asyncio

from tests.storage.talk import Talk
from transom.storage.sql_store import SqlStore


async def test_a_lease_has_one_holder(store: SqlStore) -> None:
    talk = Talk(store)
    assert await store.lease(talk.id, b"root", "one", 60)
    assert not await store.lease(talk.id, b"root", "other", 60)
    assert await store.lease(talk.id, b"root", "one", 60)
    assert await store.lease(talk.id, b"another root", "other", 60)


async def test_a_lease_is_given_back_by_its_holder_only(store: SqlStore) -> None:
    talk = Talk(store)
    assert await store.lease(talk.id, b"root", "one", 60)
    await store.release(talk.id, b"root", "other")
    assert not await store.lease(talk.id, b"root", "other", 60)
    await store.release(talk.id, b"root", "one")
    assert await store.lease(talk.id, b"root", "other", 60)


async def test_a_lease_ends_by_itself(store: SqlStore) -> None:
    talk = Talk(store)
    assert await store.lease(talk.id, b"root", "one", 0.01)
    await asyncio.sleep(0.05)
    assert await store.lease(talk.id, b"root", "other", 60)


async def test_of_many_that_ask_at_once_one_gets_it(store: SqlStore) -> None:
    talk = Talk(store)
    taken = await asyncio.gather(*(store.lease(talk.id, b"root", f"holder {n}", 60) for n in range(20)))
    assert taken.count(True) == 1


async def test_leases_go_with_their_session(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["hello"]))
    assert await store.lease(talk.id, b"root", "one", 60)
    assert await store.delete_session(talk.id)
    assert (await store.stats())["leases"] == 0
