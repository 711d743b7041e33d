import asyncio
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import make_url

from tests.storage.talk import NOW, Talk
from transom.storage import committer
from transom.storage.rows import AuditRow, Batch, MessageRow, SessionRow, UseRow
from transom.storage.sql_store import SqlStore
from transom.storage.store import MissingParent, QueueFull, StorageError, StorageTimeout


async def known(store: SqlStore, talk: Talk, texts: list[str]) -> int:
    return len((await store.load(talk.id, talk.ids(texts))).known)


def move(file: Path, to: Path) -> None:
    """Move a file, which must not have been made anew at its old place."""
    assert not to.exists()
    file.rename(to)


class Gate:
    """Keeps the writer from working, so that what is written meanwhile becomes one group."""

    def __init__(self, store: SqlStore) -> None:
        self._open = threading.Event()
        self._held = store._committer.run("gate", lambda cursor: self._open.wait(30))

    async def open(self) -> None:
        self._open.set()
        await self._held


async def test_of_a_group_only_the_bad_batch_fails(store: SqlStore) -> None:
    good = [Talk(store) for _ in range(5)]
    orphan = MessageRow(os.urandom(16), good[0].id, b"no such parent", b"{}", 1, 1, "user")
    stranger = MessageRow(os.urandom(16), b"no such session", None, b"{}", 1, 1, "user")
    gate = Gate(store)
    futures = [store.write(talk.batch(["a", "b"])) for talk in good[:2]]
    futures += [store.write(Batch(messages=[orphan])), store.write(Batch(messages=[stranger]))]
    futures += [store.write(talk.batch(["a", "b"])) for talk in good[2:]]
    await gate.open()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes[2:4]] == [MissingParent, MissingParent]
    assert outcomes[:2] + outcomes[4:] == [None] * 5
    assert [await known(store, talk, ["a", "b"]) for talk in good] == [2] * 5


async def test_a_bad_batch_leaves_nothing_behind(store: SqlStore) -> None:
    talk = Talk(store)
    batch = talk.batch(["a", "b"])
    batch.messages.append(MessageRow(os.urandom(16), talk.id, b"no such parent", b"{}", 1, 1, "user"))
    with pytest.raises(MissingParent):
        await store.write(batch)
    assert await known(store, talk, ["a", "b"]) == 0
    assert await store.session(talk.id) is None


async def test_a_number_too_large_fails_its_batch_alone(store: SqlStore) -> None:
    talk, other = Talk(store), Talk(store)
    row = talk.request(["a"], tokens_sent=2**64)
    gate = Gate(store)
    bad = store.write(Batch(sessions=[talk.row()], messages=talk.messages(["a"]), requests=[row]))
    good = store.write(other.batch(["a"]))
    await gate.open()
    with pytest.raises(StorageError, match="a value that cannot be stored"):
        await bad
    await good


async def test_labels_that_a_database_refuses_are_made_storable(store: SqlStore) -> None:
    half, nul = Talk(store, tenant="half \ud83d"), Talk(store, tenant="nul \x00")
    await asyncio.gather(store.write(half.batch(["a"])), store.write(nul.batch(["b"])))
    told = await store.session(half.id)
    assert told is not None
    assert told["tenant"] == "half \ufffd"
    assert await known(store, nul, ["b"]) == 1


async def test_writes_are_committed_in_the_order_of_the_calls(store: SqlStore) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(600)]
    await store.write(Batch(sessions=[talk.row()]))
    await asyncio.gather(*(store.write(Batch(messages=[row])) for row in talk.messages(texts)))
    assert await store.thread(talk.id, talk.ids(texts)[-1]) == talk.messages(texts)


async def test_closing_commits_what_was_handed_over(url: str) -> None:
    store = SqlStore.open(url)
    talk, texts = Talk(store), [f"message {place}" for place in range(300)]
    futures = [store.write(Batch(sessions=[talk.row()], messages=[row])) for row in talk.messages(texts)]
    await store.close()
    await asyncio.gather(*futures)
    with pytest.raises(StorageError, match="closed"):
        await store.write(talk.batch(["late"]))
    with pytest.raises(StorageError, match="closed"):
        await store.ping()
    await store.close()
    again = SqlStore.open(url)
    assert await known(again, talk, texts) == 300
    await again.close()


async def test_a_cancelled_caller_changes_nothing(store: SqlStore) -> None:
    talk = Talk(store)
    gate = Gate(store)
    given_up, awaited = store.write(talk.batch(["a"])), store.write(talk.batch(["a", "b"], 1))
    given_up.cancel()
    await gate.open()
    await awaited
    assert await known(store, talk, ["a", "b"]) == 2


async def test_a_failure_nobody_waits_for_is_not_reported_by_the_loop(store: SqlStore) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, told: reported.append(told))
    future = store.write(Batch(messages=[MessageRow(b"x", b"no session", None, b"", 1, 1, "user")]))
    await asyncio.wait([future])
    del future
    await asyncio.sleep(0)
    assert reported == []


async def test_a_full_queue_refuses_at_once(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "QUEUE_BATCHES", 3)
    talk = Talk(store)
    gate = Gate(store)
    futures = [store.write(talk.batch(["a"])) for _ in range(5)]
    refused = [future for future in futures if future.done()]
    assert [type(future.exception()) for future in refused] == [QueueFull] * 3
    await gate.open()
    await asyncio.gather(*(future for future in futures if future not in refused))
    await store.write(talk.batch(["b"]))


async def test_a_queue_is_full_by_bytes_too(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "QUEUE_BYTES", 10_000)
    talk = Talk(store)
    gate = Gate(store)
    large = Batch(sessions=[talk.row()], messages=[MessageRow(b"m", talk.id, None, bytes(50_000), 1, 1, "user")])
    small = store.write(talk.batch(["a"]))
    with pytest.raises(QueueFull):
        await store.write(large)
    await gate.open()
    await small
    await store.write(large)


def test_every_event_loop_gets_its_own_answers(url: str) -> None:
    with asyncio.Runner() as runner, asyncio.Runner() as gone:
        store = runner.run(_opened(url))
        talk = Talk(store)

        async def abandoned() -> None:
            gate.append(Gate(store))
            store.write(talk.batch(["a"]))

        gate: list[Gate] = []
        gone.run(abandoned())
        gone.close()

        async def answered() -> None:
            future = store.write(talk.batch(["a", "b"], 1))
            gate[0]._open.set()
            await future
            await store.close()

        runner.run(answered())


async def _opened(url: str) -> SqlStore:
    return SqlStore.open(url)


async def test_a_mistake_of_the_caller_stays_visible(store: SqlStore) -> None:
    talk = Talk(store)
    with pytest.raises(StorageError) as caught:
        await store.write(Batch(steps=[talk.row()]))  # type: ignore[list-item]
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(MissingParent) as other:
        await store.write(talk.batch(["a", "b"], 1))
    assert other.value.__cause__ is None


async def test_a_lock_held_past_the_deadline_fails_what_waits_and_no_more(
    hasty_store: SqlStore, sqlite_file: Path
) -> None:
    talk = Talk(hasty_store)
    await hasty_store.write(talk.batch(["a"]))
    stranger = sqlite3.connect(sqlite_file, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    first = hasty_store.write(talk.batch(["a", "b"], 1))
    await asyncio.sleep(0.1)
    others = [hasty_store.write(talk.batch(["a", "b"], 1)) for _ in range(3)]
    outcomes = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageTimeout] * 4
    assert (await hasty_store.load(talk.id, talk.ids(["a"]))).known
    stranger.rollback()
    stranger.close()
    with pytest.raises(MissingParent):
        await hasty_store.write(talk.batch(["a", "b", "c"], 2))
    await hasty_store.write(talk.batch(["a", "b", "c"], 1))


async def test_work_that_waited_past_its_deadline_for_a_lock_is_not_tried(
    hasty_store: SqlStore, sqlite_file: Path
) -> None:
    talk = Talk(hasty_store)
    stranger = sqlite3.connect(sqlite_file, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    leases = [asyncio.ensure_future(hasty_store.lease(talk.id, b"root", "one", 1)) for _ in range(8)]
    outcomes = await asyncio.gather(*leases, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StorageTimeout}
    stranger.rollback()
    stranger.close()
    assert await hasty_store.lease(talk.id, b"root", "one", 1)


async def test_a_full_disk_fails_writes_until_there_is_room(sqlite_store: SqlStore) -> None:
    talk = Talk(sqlite_store)
    await sqlite_store.write(talk.batch(["a"]))

    def limit(pages: int) -> Any:
        return lambda cursor: cursor.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    await sqlite_store._committer.run("limit", limit(1), transaction=False)
    big = MessageRow(os.urandom(16), talk.id, None, bytes(1_000_000), 1, 1, "user")
    gate = Gate(sqlite_store)
    too_much, fits = (
        sqlite_store.write(Batch(messages=[big])),
        sqlite_store.write(Batch(uses=[UseRow(talk.id, NOW + 1)])),
    )
    await gate.open()
    with pytest.raises(StorageError, match="disk full"):
        await too_much
    await fits
    await sqlite_store._committer.run("limit", limit(1_000_000), transaction=False)
    await sqlite_store.write(Batch(messages=[big]))


async def test_rows_are_not_written_to_a_file_that_nobody_sees(sqlite_store: SqlStore, sqlite_file: Path) -> None:
    talk = Talk(sqlite_store)
    await sqlite_store.write(talk.batch(["a"]))
    away = sqlite_file.with_name("away.db")
    move(sqlite_file, away)
    for _ in range(2):
        with pytest.raises(StorageError, match="the file was replaced"):
            await sqlite_store.write(talk.batch(["a", "b"], 1))
        with pytest.raises(StorageError, match="the file was replaced"):
            await sqlite_store.ping()
    move(away, sqlite_file)
    await sqlite_store.ping()
    await sqlite_store.write(talk.batch(["a", "b"], 1))


async def test_a_lost_connection_is_replaced(postgres_store: SqlStore) -> None:
    talk = Talk(postgres_store)
    await postgres_store.write(talk.batch(["a"]))
    await postgres_store.ping()
    end_others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'transom'"
    with pytest.raises(StorageError, match="connection lost"):
        await postgres_store._committer.run("end", lambda cursor: cursor.execute(end_others))
    await postgres_store.write(talk.batch(["a", "b"], 1))
    assert await known(postgres_store, talk, ["a", "b"]) == 2


async def test_a_last_use_waits_for_nobody(postgres_store: SqlStore, migrated_schema: str) -> None:
    talk = Talk(postgres_store)
    await postgres_store.write(talk.batch(["a"]))
    server = make_url(migrated_schema).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(server) as other:
        other.execute("UPDATE sessions SET used_at = used_at WHERE id = %s", (talk.id.hex(),))
        await postgres_store.write(Batch(uses=[UseRow(talk.id, NOW + 1)], messages=talk.messages(["a", "b"], 1)))
        assert await known(postgres_store, talk, ["a", "b"]) == 2
    await postgres_store.write(Batch(uses=[UseRow(talk.id, NOW + 2)]))
    told = await postgres_store.session(talk.id)
    assert told is not None
    assert told["last_used"] == NOW + 2


async def test_processes_do_not_wait_for_each_other_in_a_circle(postgres_store: SqlStore, migrated_schema: str) -> None:
    """A circle costs everybody in it the second after which PostgreSQL looks for one."""
    other, talks = SqlStore.open(migrated_schema, timeout_s=60.0), [Talk(postgres_store) for _ in range(120)]
    before = await deadlocks(postgres_store)
    for turn in range(6):
        texts, writes = [f"message {place}" for place in range(turn + 1)], []
        for store, order in ((postgres_store, talks), (other, talks[::-1])):
            gate = Gate(store)
            for place, talk in enumerate(order):
                batch = talk.batch(texts, turn, NOW + turn)
                if turn and (place + turn) % 3:
                    batch.sessions, batch.uses = [], [UseRow(talk.id, NOW + turn)]
                writes.append(store.write(batch))
            writes.append(asyncio.ensure_future(gate.open()))
        await asyncio.gather(*writes)
    await other.close()
    assert await deadlocks(postgres_store) == before


async def deadlocks(store: SqlStore) -> int:
    """Return how many PostgreSQL has met."""
    asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

    def work(cursor: Any) -> int:
        cursor.execute(asked)
        return int(cursor.fetchone()[0])

    return await store._committer.run("ask", work)


async def test_who_was_in_the_way_of_another_process_tries_again(postgres_store: SqlStore) -> None:
    tries = 0

    def work(_cursor: Any) -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise errors.DeadlockDetected
        return tries

    assert await postgres_store._committer.run("work", work) == 3
    tries = -10
    with pytest.raises(StorageError, match="in each other's way"):
        await postgres_store._committer.run("work", work)
    assert tries == committer.CONFLICT_TRIES - 9


async def test_an_erased_session_takes_no_more_rows(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["a"]))
    await store.delete_session(talk.id)
    late = [
        Batch(uses=[UseRow(talk.id, NOW)], messages=talk.messages(["a", "b"], 1)),
        Batch(requests=[talk.request(["a"])]),
        Batch(sessions=[talk.row()], messages=talk.messages(["a", "b"], 1)),
    ]
    for batch in late:
        with pytest.raises(MissingParent):
            await store.write(batch)
    await store.write(Batch(uses=[UseRow(talk.id, NOW)]))
    assert await store.session(talk.id) is None


async def test_reads_of_content_leave_a_row(store: SqlStore) -> None:
    await store.write(Batch(audit=[AuditRow("admin", "export", "acme", os.urandom(16), NOW)]))
    await store.write(Batch(audit=[AuditRow("admin", "export", None, None, NOW)]))
    assert (await store.stats())["audit"] == 2


async def test_sessions_are_opened_once(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(Batch(sessions=[talk.row(NOW)]))
    await store.write(Batch(sessions=[SessionRow(talk.id, "thief", None, "body", None, NOW + 5)]))
    told = await store.session(talk.id)
    assert told is not None
    assert (told["tenant"], told["source"], told["created"], told["last_used"]) == ("acme", "header", NOW, NOW + 5)
