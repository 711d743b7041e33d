import asyncio
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.talk import Talk
from transom.storage.rows import Batch, MessageRow
from transom.storage.sql_store import SqlStore
from transom.storage.store import Store

PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), min_size=1, max_size=8)


def test_the_store_is_a_store(store: SqlStore) -> None:
    port: Store = store
    assert len(port.secret) == 32


async def one_request(store: SqlStore, talk: Talk, texts: list[str]) -> None:
    """Do what the proxy does with a request: look up, write what is new."""
    known = (await store.load(talk.id, talk.ids(texts))).known
    new = [row for row in talk.messages(texts) if row.id not in known]
    await store.write(Batch(sessions=[talk.row()], messages=new))


def test_any_interleaving_of_resends_edits_and_retries_stores_each_message_once(url: str) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(_opened(url))

        @settings(max_examples=25, deadline=None, database=None)
        @given(PATHS, st.integers(1, 4))
        def holds(paths: list[list[str]], at_once: int) -> None:
            runner.run(_play(store, paths, at_once))

        try:
            holds()
        finally:
            runner.run(store.close())


async def _opened(url: str) -> SqlStore:
    return SqlStore.open(url, timeout_s=60.0)


async def _play(store: SqlStore, paths: list[list[str]], at_once: int) -> None:
    """Send the threads, several at once, and look at what is stored."""
    talk = Talk(store)
    for start in range(0, len(paths), at_once):
        await asyncio.gather(*(one_request(store, talk, texts) for texts in paths[start : start + at_once]))
    distinct = {tuple(texts[:end]) for texts in paths for end in range(1, len(texts) + 1)}
    told = await store.session(talk.id)
    assert told is not None
    ids = [message["id"] for message in told["messages"]]
    assert sorted(ids) == sorted(talk.ids(list(prefix))[-1].hex() for prefix in distinct)
    assert {message["parent"] for message in told["messages"]} <= {None, *ids}
    for texts in paths:
        assert await store.thread(talk.id, talk.ids(texts)[-1]) == talk.messages(texts)


async def test_a_long_history_resent_each_turn_is_stored_once(store: SqlStore) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(60)]
    for end in range(1, len(texts) + 1):
        await one_request(store, talk, texts[:end])
        await store.write(talk.batch(texts[:end]))
    assert (await store.stats())["messages"] == len(texts)


async def test_bytes_come_back_as_they_were(store: SqlStore) -> None:
    talk = Talk(store)
    payloads = [b"", b"\x00" * 10, b'{"n": 18446744073709551616, "t": "a\\u0000b"}', "é😀".encode(), bytes(range(256))]
    payloads.append(os.urandom(20_000_000))
    rows, parent = [], None
    for payload in payloads:
        rows.append(MessageRow(os.urandom(16), talk.id, parent, payload, 1, 1, "user"))
        parent = rows[-1].id
    await store.write(Batch(sessions=[talk.row()], messages=rows))
    assert await store.thread(talk.id, rows[-1].id) == rows


async def test_two_workers_store_the_same_conversations_once(postgres_store: SqlStore, migrated_schema: str) -> None:
    other = SqlStore.open(migrated_schema, timeout_s=60.0)
    talks = [Talk(postgres_store) for _ in range(6)]
    threads = [[f"message {place}" for place in range(end)] + ["edit"] for end in range(1, 8)]
    turns = [(store, talk, texts) for texts in threads for talk in talks for store in (postgres_store, other)]
    await asyncio.gather(*(one_request(store, talk, texts) for store, talk, texts in turns))
    await other.close()
    assert (await postgres_store.stats())["messages"] == len(talks) * (7 + 7)
    for talk in talks:
        for texts in threads:
            thread = await postgres_store.thread(talk.id, talk.ids(texts)[-1])
            assert [row.id for row in thread] == talk.ids(texts)


async def test_ping_answers(store: SqlStore) -> None:
    await store.ping()
