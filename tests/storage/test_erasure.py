import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from tests.storage.talk import NOW, Talk
from transom.storage import erasure
from transom.storage.rows import (
    BaselineRow,
    Batch,
    LinkRow,
    MessageRow,
    PreambleRow,
    StepRow,
    SummaryRow,
)
from transom.storage.schema import OF_A_SESSION
from transom.storage.sql_store import SqlStore


def holding(folder: Path, canary: bytes) -> list[str]:
    """Return the names of the files with these bytes in them."""
    return [file.name for file in folder.iterdir() if canary in file.read_bytes()]


def everything(talk: Talk, mark: str) -> Batch:
    """Return a row in every table that belongs to a session."""
    raw = mark.encode()
    recipe = b'{"labels": ["' + raw + b'"]}'
    batch = talk.batch([f"{mark} {place}" * 40 for place in range(60)])
    head = batch.messages[-1].id
    batch.messages.append(MessageRow(os.urandom(16), talk.id, head, raw * 100_000, 1, 1, "user"))
    batch.preambles.append(PreambleRow(os.urandom(16), talk.id, raw, 1))
    batch.summaries.append(SummaryRow(os.urandom(16), talk.id, head, 1, None, mark, 1, mark, "1", (mark,), (mark,)))
    batch.baselines.append(BaselineRow(talk.id, head, 1, "summary", raw, recipe, batch.summaries[0].id))
    batch.steps.append(StepRow(talk.id, head, raw, raw, recipe))
    batch.links.append(LinkRow(os.urandom(16), talk.id, head))
    batch.requests.append(talk.request([f"{mark} 0" * 40], mark, completion_id=mark))
    return batch


async def test_nothing_of_an_erased_session_is_left(store: SqlStore) -> None:
    erased, other = Talk(store), Talk(store)
    for talk in (other, erased):
        await store.write(everything(talk, "mark"))
    before = await store.stats()
    assert await store.delete_session(erased.id)
    after = await store.stats()
    for table in OF_A_SESSION:
        assert 0 < after[table.name] == before[table.name] // 2, table.name
    assert not await store.delete_session(erased.id)
    assert await store.session(erased.id) is None
    assert await store.session(other.id) is not None


async def test_no_byte_of_an_erased_session_is_left_in_the_files(sqlite_store: SqlStore, sqlite_file: Path) -> None:
    other = Talk(sqlite_store)
    await sqlite_store.write(everything(other, "kept"))
    for _ in range(10):
        talk = Talk(sqlite_store)
        await sqlite_store.write(everything(talk, "canary"))
        assert holding(sqlite_file.parent, b"canary")
        assert await sqlite_store.delete_session(talk.id)
        assert holding(sqlite_file.parent, b"canary") == []
    assert holding(sqlite_file.parent, b"kept")


async def test_a_long_read_delays_the_wiping_of_the_journal_and_nothing_else(
    sqlite_store: SqlStore, sqlite_file: Path
) -> None:
    talk, other = Talk(sqlite_store), Talk(sqlite_store)
    await sqlite_store.write(everything(talk, "canary"))
    reader = sqlite3.connect(sqlite_file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    erasing = asyncio.ensure_future(sqlite_store.delete_session(talk.id))
    await sqlite_store.write(other.batch(["meanwhile"]))
    reader.rollback()
    reader.close()
    assert await erasing
    assert holding(sqlite_file.parent, b"canary") == []


async def test_a_reader_that_never_ends_does_not_stop_an_erasure(
    sqlite_store: SqlStore, sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(sqlite_store)
    await sqlite_store.write(everything(talk, "canary"))
    reader = sqlite3.connect(sqlite_file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchall()
    monkeypatch.setattr(erasure, "WIPE_PAUSES_S", (0.0, 0.01))
    assert not await sqlite_store._erasure.wipe()
    reader.rollback()
    reader.close()
    assert await sqlite_store._erasure.wipe()


async def test_a_user_s_sessions_are_erased_together(store: SqlStore) -> None:
    mine = [Talk(store, user=b"me") for _ in range(12)]
    others = [Talk(store, user=b"you"), Talk(store), Talk(store, tenant="other", user=b"me")]
    for talk in (*mine, *others):
        await store.write(talk.batch(["hello"], at=NOW))
    assert await store.delete_user("acme", b"me") == [talk.id for talk in mine]
    assert await store.delete_user("acme", b"me") == []
    assert [await store.session(talk.id) is not None for talk in others] == [True] * 3


async def test_a_session_comes_back_when_it_is_used_again(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["a", "b"]))
    await store.delete_session(talk.id)
    await store.write(talk.batch(["a", "b", "c"]))
    assert await store.thread(talk.id, talk.ids(["a", "b", "c"])[-1]) == talk.messages(["a", "b", "c"])
