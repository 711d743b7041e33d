import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.storage.talk import Talk
from transom.storage.driver import Cursor, DriverFault, Fault
from transom.storage.readers import THREADS
from transom.storage.sql_store import SqlStore
from transom.storage.store import StorageError, StorageTimeout


class Told:
    """Writes down what it is told."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def storage(self, operation: str, seconds: float) -> None:
        assert seconds >= 0
        self._told.append(operation)

    def storage_error(self, operation: str) -> None:
        self._told.append(f"{operation} failed")


def damage(file: Path) -> None:
    """Overwrite the heads of most pages."""
    raw = bytearray(file.read_bytes())
    for start in range(40 * 4096, len(raw), 4096):
        raw[start : start + 200] = b"\xff" * 200
    file.write_bytes(raw)


async def test_a_look_up_has_a_deadline(hasty_store: SqlStore) -> None:
    done = threading.Event()
    with pytest.raises(StorageTimeout):
        await hasty_store._readers.call("slow", lambda cursor: done.wait(60))
    done.set()
    await hasty_store.ping()


async def test_what_fails_is_told_and_what_is_given_up_is_not(migrated_file: Path) -> None:
    told: list[str] = []
    store = SqlStore.open(f"sqlite:///{migrated_file}", Told(told), timeout_s=60.0)
    await store.ping()
    given_up = asyncio.ensure_future(store._readers.call("given up", lambda cursor: None))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    with pytest.raises(StorageError):
        await store._readers.call("wrong", lambda cursor: cursor.execute("SELECT * FROM nothing"))
    with pytest.raises(StorageError):
        await store._committer.run("refused", lambda cursor: cursor.execute("INSERT INTO nothing VALUES (1)"))
    await store.close()
    assert told == ["ping", "given up", "wrong failed", "wrong", "refused", "refused failed"]


async def test_a_look_up_is_not_made_for_nobody(store: SqlStore) -> None:
    done = threading.Event()
    stuck = [asyncio.ensure_future(store._readers.call("slow", lambda cursor: done.wait(60))) for _ in range(THREADS)]
    made: list[None] = []
    given_up = asyncio.ensure_future(store._readers.call("given up", lambda cursor: made.append(None)))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    done.set()
    await asyncio.gather(*stuck)
    await store.ping()
    assert made == []


def test_an_answer_for_a_closed_event_loop_is_dropped(url: str) -> None:
    reached, done = threading.Event(), threading.Event()

    async def opened() -> SqlStore:
        return SqlStore.open(url)

    async def abandoned(store: SqlStore) -> None:
        asyncio.ensure_future(store._readers.call("late", slow)).add_done_callback(lambda late: late.cancelled())
        await asyncio.to_thread(reached.wait, 60)

    def slow(cursor: Cursor) -> bool:
        reached.set()
        return done.wait(60)

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        with asyncio.Runner() as gone:
            gone.run(abandoned(store))
        done.set()
        for _ in range(THREADS):
            runner.run(store.ping())
        runner.run(store.close())


async def test_look_ups_go_on_while_others_are_stuck(store: SqlStore) -> None:
    done = threading.Event()
    stuck = [asyncio.ensure_future(store._readers.call("slow", lambda cursor: done.wait(60))) for _ in range(3)]
    await store.ping()
    done.set()
    assert await asyncio.gather(*stuck) == [True] * 3


async def test_a_reader_cannot_write(store: SqlStore) -> None:
    with pytest.raises(StorageError, match="read-only"):
        await store._readers.call("sly", lambda cursor: cursor.execute("DELETE FROM sessions"))
    await store.ping()


async def test_a_mistake_of_the_caller_is_not_a_storage_error(store: SqlStore) -> None:
    with pytest.raises(ZeroDivisionError):
        await store._readers.call("wrong", lambda cursor: 1 // 0)


async def test_a_busy_database_costs_no_connection(store: SqlStore) -> None:
    def busy(cursor: Cursor) -> None:
        raise DriverFault(Fault.BUSY)

    everybody = threading.Barrier(THREADS)

    def connection(cursor: Any) -> Any:
        everybody.wait(60)
        return cursor.connection

    async def connections() -> set[Any]:
        return set(await asyncio.gather(*(store._readers.call("which", connection) for _ in range(THREADS))))

    opened = await connections()
    with pytest.raises(StorageTimeout):
        await store._readers.call("busy", busy)
    assert len(opened) == THREADS
    assert await connections() == opened


async def test_an_error_says_nothing_of_statement_or_values(store: SqlStore) -> None:
    with pytest.raises(StorageError) as caught:
        await store._readers.call("sly", lambda cursor: cursor.execute("SELECT secret_canary FROM nowhere"))
    assert str(caught.value) == "storage: sly: failed"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_lost_connections_are_replaced(postgres_store: SqlStore) -> None:
    await asyncio.gather(*(postgres_store.ping() for _ in range(20)))
    end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'transom'"
    with pytest.raises(StorageError, match="connection lost"):
        await postgres_store._readers.call("end", lambda cursor: cursor.execute(end_all))
    for _ in range(10):
        await postgres_store.ping()


async def test_a_damaged_page_is_reported(sqlite_file: Path) -> None:
    url = f"sqlite:///{sqlite_file}"
    store = SqlStore.open(url)
    talk, texts = Talk(store), [f"message {place}" * 50 for place in range(400)]
    await store.write(talk.batch(texts))
    await store.close()
    damage(sqlite_file)
    store = SqlStore.open(url)
    with pytest.raises(StorageError, match="damaged"):
        await store.thread(talk.id, talk.ids(texts)[-1])
    await store.close()
