import os

import pytest

from tests.storage.talk import NOW, Talk
from transom.storage.lookups import BUCKETS, chunks
from transom.storage.rows import BaselineRow, Batch, FactorRow, LinkRow, Loaded, StepRow, SummaryRow
from transom.storage.sql_store import SqlStore


@pytest.mark.parametrize("count", [1, 4, 5, 64, 65, 512, 513, 5000])
def test_chunks_hold_every_id_in_few_fixed_lengths(count: int) -> None:
    ids = [os.urandom(16) for _ in range(count)]
    seen: list[bytes] = []
    for bucket, parameters in chunks(ids):
        assert bucket in BUCKETS
        assert len(parameters) == bucket
        seen += parameters.values()
    assert list(dict.fromkeys(seen)) == ids


@pytest.mark.parametrize("length", [1, 3, 70, 1100])
async def test_what_is_stored_of_a_thread_is_known(store: SqlStore, length: int) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(length)]
    await store.write(talk.batch(texts))
    ids = talk.ids([*texts, "new"])
    loaded = await store.load(talk.id, ids)
    assert loaded.known == set(ids[:-1])
    assert (loaded.baselines, loaded.summaries) == ([], {})


async def test_nothing_is_known_of_no_ids_or_of_a_new_session(store: SqlStore) -> None:
    talk = Talk(store)
    for length in (0, 1, 100):
        assert (await store.load(talk.id, talk.ids(["x"] * length))).known == set()


async def test_a_session_does_not_know_anothers_messages(store: SqlStore) -> None:
    one, other = Talk(store), Talk(store, tenant="other")
    await store.write(one.batch(["hello"]))
    await store.write(other.batch(["hello"]))
    assert (await store.load(other.id, one.ids(["hello"]))).known == set()
    assert await store.thread(other.id, one.ids(["hello"])[0]) == []


def folded(talk: Talk, texts: list[str], position: int) -> Batch:
    at = talk.ids(texts)[position]
    summary = SummaryRow(
        os.urandom(16), talk.id, at, position, None, f"upto {position} \x00 é", 5, "m", "1", ("a é",), ("b",)
    )
    return Batch(
        summaries=[summary],
        baselines=[BaselineRow(talk.id, at, position, "summary", b"", b"recipe", summary.id)],
    )


@pytest.mark.parametrize("length", [12, 100])
async def test_baselines_come_deepest_first_with_their_summaries(store: SqlStore, length: int) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(length)]
    await store.write(talk.batch(texts))
    early, late = folded(talk, texts, 3), folded(talk, texts, 9)
    await store.write(late)
    await store.write(early)
    cut = BaselineRow(talk.id, talk.ids(texts)[5], 5, "cut", b"policy", b"recipe")
    await store.write(Batch(baselines=[cut]))
    loaded = await store.load(talk.id, talk.ids(texts))
    assert loaded.baselines == [late.baselines[0], cut, early.baselines[0]]
    assert loaded.summaries == {batch.summaries[0].id: batch.summaries[0] for batch in (early, late)}
    assert (await store.load(talk.id, talk.ids(texts)[:8])).baselines == [cut, early.baselines[0]]


@pytest.mark.parametrize("length", [12, 100])
@pytest.mark.parametrize("stored", [1, 2, 9, 12])
async def test_of_what_is_known_to_be_stored_only_what_was_made_of_it_is_told(
    store: SqlStore, length: int, stored: int
) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(length)]
    ids = talk.ids([*texts, "new"])
    assert await store.load(talk.id, ids, stored) == Loaded(set(), [], {})
    await store.write(talk.batch(texts))
    loaded = await store.load(talk.id, ids, stored)
    assert loaded == Loaded({ids[0], *ids[stored - 1 : -1]}, [], {})
    early, late = folded(talk, texts, 3), folded(talk, texts, 9)
    for batch in (late, early):
        await store.write(batch)
    other = [*texts[:5], "edited", *texts[6:]]
    await store.write(talk.batch(other))
    await store.write(folded(talk, other, 7))
    loaded = await store.load(talk.id, ids, stored)
    assert loaded.baselines == [late.baselines[0], early.baselines[0]]
    assert set(loaded.summaries) == {batch.summaries[0].id for batch in (early, late)}


async def test_baselines_of_another_branch_are_not_given(store: SqlStore) -> None:
    talk = Talk(store)
    trunk = [f"message {place}" for place in range(100)]
    branch = [*trunk[:90], "edited"]
    await store.write(talk.batch(trunk))
    await store.write(talk.batch(branch))
    await store.write(folded(talk, trunk, 95))
    assert (await store.load(talk.id, talk.ids(branch))).baselines == []


async def test_many_baselines_of_one_session_are_all_found(store: SqlStore) -> None:
    talk, texts = Talk(store), [f"message {place}" for place in range(150)]
    await store.write(talk.batch(texts))
    rows = [BaselineRow(talk.id, at, n, "cut", b"p", b"r") for n, at in enumerate(talk.ids(texts))]
    await store.write(Batch(baselines=rows))
    for stored in (0, 79, 80):
        assert (await store.load(talk.id, talk.ids(texts)[:80], stored)).baselines == rows[79::-1]


async def test_the_first_writer_of_a_step_or_baseline_wins(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["hello"]))
    head = talk.ids(["hello"])[0]
    for recipe in (b"first", b"second"):
        await store.write(
            Batch(
                steps=[StepRow(talk.id, head, b"", b"policy", recipe)],
                baselines=[BaselineRow(talk.id, head, 0, "cut", b"policy", recipe)],
            )
        )
    assert await store.step(talk.id, head, b"", b"policy") == StepRow(talk.id, head, b"", b"policy", b"first")
    assert [row.recipe for row in (await store.load(talk.id, [head])).baselines] == [b"first"]


@pytest.mark.parametrize("changed", ["session", "head", "preamble", "policy"])
async def test_a_step_is_for_one_very_request(store: SqlStore, changed: str) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["hello"]))
    asked = {"session": talk.id, "head": talk.ids(["hello"])[0], "preamble": b"p", "policy": b"f"}
    await store.write(Batch(steps=[StepRow(**asked, recipe=b"r")]))
    assert await store.step(**asked) is not None
    assert await store.step(**{**asked, changed: b"another"}) is None


async def test_a_keyless_session_is_found_by_its_newest_link(store: SqlStore) -> None:
    older, newer = Talk(store), Talk(store)
    for talk in (older, newer):
        await store.write(talk.batch(["hello", "hi"]))
        await store.write(Batch(links=[LinkRow(b"hello, hi", talk.id, talk.ids(["hello", "hi"])[1])]))
    await store.write(Batch(links=[LinkRow(b"longer", older.id, older.ids(["hello"])[0])]))
    assert await store.find_session([b"unknown", b"hello, hi"]) == (b"hello, hi", newer.id)
    assert await store.find_session([b"longer", b"hello, hi"]) == (b"longer", older.id)
    assert await store.find_session([b"hello, hi", b"longer"]) == (b"hello, hi", newer.id)
    assert await store.find_session([b"unknown"]) is None
    assert await store.find_session([]) is None
    assert await store.delete_session(newer.id)
    assert await store.find_session([b"hello, hi"]) == (b"hello, hi", older.id)


async def test_a_thread_is_read_back_from_its_root(store: SqlStore) -> None:
    talk = Talk(store)
    trunk, branch = ["a", "b", "c"], ["a", "b", "x", "y"]
    await store.write(talk.batch(trunk))
    await store.write(talk.batch(branch))
    assert await store.thread(talk.id, talk.ids(branch)[-1]) == talk.messages(branch)
    assert await store.thread(talk.id, talk.ids(trunk)[1]) == talk.messages(trunk)[:2]
    assert await store.thread(talk.id, b"unknown") == []
    assert await store.thread(talk.id, talk.ids(branch)[-1], talk.ids(trunk)[1]) == talk.messages(branch)[2:]
    assert await store.thread(talk.id, talk.ids(branch)[-1], talk.ids(trunk)[2]) == talk.messages(branch)


async def test_factors_are_replaced(store: SqlStore) -> None:
    await store.write(Batch(factors=[FactorRow("m", (1.0,), NOW), FactorRow("n", (2.0, 1.5), NOW)]))
    await store.write(Batch(factors=[FactorRow("m", (1.0, 1.1), NOW + 1)]))
    assert await store.factors() == {
        "m": FactorRow("m", (1.0, 1.1), NOW + 1),
        "n": FactorRow("n", (2.0, 1.5), NOW),
    }


def test_no_hot_look_up_walks_through_a_table(sqlite_store: SqlStore) -> None:
    lookups = sqlite_store._lookups
    by_id = (lookups._known, lookups._baselines, lookups._links)
    single = (lookups._deepest, lookups._session, lookups._step, lookups._thread)
    statements = [*single, *(look_up.compiled(bucket) for look_up in by_id for bucket in BUCKETS)]
    connection = sqlite_store._database.driver.connect(read_only=True)
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement.sql}", ("",) * len(statement.names))
        for *_, step in cursor.fetchall():
            scanned = step.removeprefix("SCAN ") if step.startswith("SCAN ") else "asked"
            assert scanned.split()[0] in ("asked", "walk") or "CONSTANT ROW" in scanned, step
    connection.close()
