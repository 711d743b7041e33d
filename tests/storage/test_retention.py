from tests.storage.talk import NOW, Talk
from transom.storage.retention import DAY
from transom.storage.rows import Batch, UseRow
from transom.storage.sql_store import SqlStore


async def stored(store: SqlStore, age_days: float, tenant: str = "acme") -> Talk:
    talk = Talk(store, tenant=tenant)
    await store.write(talk.batch(["hello", "hi"], at=NOW - age_days * DAY))
    return talk


async def left(store: SqlStore) -> int:
    return (await store.stats())["sessions"]


async def there(store: SqlStore, talk: Talk) -> bool:
    return await store.session(talk.id) is not None


async def test_what_was_unused_for_long_goes_and_the_rest_stays(store: SqlStore) -> None:
    old, young = await stored(store, 31), await stored(store, 29)
    result = await store.retain(NOW, 30, {})
    assert (result.sessions, result.due, result.erased, result.waits) == (2, 1, [old.id], False)
    assert await there(store, young)
    assert not await there(store, old)


async def test_a_session_in_use_stays(store: SqlStore) -> None:
    talk = await stored(store, 400)
    await store.write(Batch(uses=[UseRow(talk.id, NOW)]))
    assert (await store.retain(NOW, 30, {})).erased == []
    assert await there(store, talk)


async def test_a_use_in_the_past_changes_nothing(store: SqlStore) -> None:
    talk = await stored(store, 1)
    await store.write(Batch(uses=[UseRow(talk.id, NOW - 400 * DAY)]))
    await store.write(Batch(sessions=[talk.row(NOW - 400 * DAY)]))
    assert (await store.retain(NOW, 30, {})).erased == []


async def test_a_session_used_between_look_up_and_erasure_stays(store: SqlStore) -> None:
    talk = await stored(store, 31)
    assert await store._erasure.erase([talk.id], unused_since=NOW - 31 * DAY) == []
    assert await store._erasure.erase([talk.id], unused_since=NOW - 30 * DAY) == [talk.id]


async def test_tenants_have_their_own_days(store: SqlStore) -> None:
    kept, short, ordinary = await stored(store, 400, "kept"), await stored(store, 2, "short"), await stored(store, 2)
    result = await store.retain(NOW, 30, {"kept": None, "short": 1})
    assert result.erased == [short.id]
    assert await there(store, kept)
    assert await there(store, ordinary)


async def test_nothing_is_erased_unless_days_are_set(store: SqlStore) -> None:
    await stored(store, 10_000)
    assert (await store.retain(NOW, None, {})).erased == []


async def test_a_run_that_would_erase_most_waits(store: SqlStore) -> None:
    rows = [Talk(store).row(NOW - (40 if place < 51 else 0) * DAY) for place in range(100)]
    await store.write(Batch(sessions=rows))
    result = await store.retain(NOW, 30, {})
    assert (result.sessions, result.due, result.erased, result.waits) == (100, 51, [], True)
    assert await left(store) == 100
    forced = await store.retain(NOW, 30, {}, force=True)
    assert (len(forced.erased), forced.waits) == (51, False)
    assert await left(store) == 49


async def test_half_of_many_or_most_of_few_are_erased_at_once(store: SqlStore) -> None:
    await store.write(Batch(sessions=[Talk(store).row(NOW - (40 if n < 50 else 0) * DAY) for n in range(100)]))
    assert len((await store.retain(NOW, 30, {})).erased) == 50
    await store.write(Batch(sessions=[Talk(store).row(NOW - 40 * DAY) for _ in range(49)]))
    assert len((await store.retain(NOW, 30, {})).erased) == 49
