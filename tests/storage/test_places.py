"""Where a turn may be added: heads, what follows them, and turns that came before."""

import pytest

from tests.storage.talk import Talk
from transom.storage.places import Places
from transom.storage.rows import Batch, Place, PreambleRow
from transom.storage.sql_store import SqlStore


async def answered(store: SqlStore, talk: Talk, texts: list[str], identity: str, **fields: object) -> None:
    """Store a thread that ends in a whole answer, and the request that it answers."""
    reply = talk.ids(texts)[-1]
    row = talk.request(texts[:-1], identity, **{"complete": True, "reply": reply, **fields})
    await store.write(Batch(sessions=[talk.row()], messages=talk.messages(texts), requests=[row]))


async def place(store: SqlStore, talk: Talk, before: list[str], turn: list[str]) -> Place:
    parent = talk.ids(before)[-1] if before else None
    return await store.place(talk.id, parent, talk.ids([*before, *turn])[-1])


async def test_a_session_begins_once(store: SqlStore) -> None:
    talk = Talk(store)
    assert await place(store, talk, [], ["a"]) == Place(True, True, False, frozenset(), None)
    await store.write(talk.batch(["a"]))
    await store.write(Batch(requests=[talk.request(["a"])]))
    assert await place(store, talk, [], ["a"]) == Place(True, True, True, frozenset(), None)
    await answered(store, talk, ["a", "b"], "r2")
    assert not (await place(store, talk, [], ["a"])).is_head


async def test_only_what_is_stored_in_the_session_is_gone_on_from(store: SqlStore) -> None:
    one, other = Talk(store), Talk(store)
    await answered(store, one, ["a", "b"], "r1")
    await answered(store, other, ["a", "b"], "r1")
    assert (await place(store, one, ["a", "b"], ["c"])).stored
    assert not (await store.place(other.id, one.ids(["a", "b"])[-1], b"head")).stored
    assert not (await store.place(b"unknown", b"parent", b"head")).stored
    assert not (await store.place(one.id, b"", b"head")).stored


async def test_a_whole_answer_is_a_head_until_a_turn_after_it_is_answered(store: SqlStore) -> None:
    talk = Talk(store)
    await answered(store, talk, ["a", "b"], "r1")
    assert (await place(store, talk, ["a", "b"], ["c"])).is_head
    assert not (await place(store, talk, ["a"], ["c"])).is_head
    await store.write(Batch(messages=talk.messages(["a", "b", "c", "half"], 2)))
    half = talk.ids(["a", "b", "c", "half"])[-1]
    await store.write(Batch(requests=[talk.request(["a", "b", "c"], "r2", reply=half, turn=b"mark")]))
    assert await place(store, talk, ["a", "b"], ["c"]) == Place(True, True, True, frozenset([b"mark"]), None)
    assert (await place(store, talk, ["a", "b", "c"], ["d"])).is_head
    assert not (await place(store, talk, ["a", "b", "c", "half"], ["d"])).is_head
    await answered(store, talk, ["a", "b", "c", "whole"], "r3")
    assert [(await place(store, talk, texts, ["x"])).is_head for texts in (["a", "b"], ["a", "b", "c"])] == [False] * 2
    assert (await place(store, talk, ["a", "b", "c", "whole"], ["d"])).is_head


async def test_branches_have_heads_of_their_own(store: SqlStore) -> None:
    talk = Talk(store)
    for number, texts in enumerate((["a", "b"], ["x", "y"], ["a", "b", "c", "d"], ["a", "b", "c", "e"])):
        await answered(store, talk, texts, f"r{number}")
    heads = [
        (await place(store, talk, texts, ["z"])).is_head for texts in (["a", "b"], ["x", "y"], ["a", "b", "c", "d"])
    ]
    assert heads == [False, True, True]


async def test_each_choice_is_a_head(store: SqlStore) -> None:
    talk = Talk(store)
    choices = [talk.ids(["a", text])[-1] for text in ("b", "c")]
    await store.write(talk.batch(["a", "b"]))
    await store.write(Batch(messages=talk.messages(["a", "c"], 1)))
    await store.write(Batch(requests=[talk.request(["a"], complete=True, reply=b"".join(choices))]))
    for choice in choices:
        assert (await store.place(talk.id, choice, b"head")).is_head


async def test_the_preamble_last_sent_with_a_thread(store: SqlStore) -> None:
    talk, texts = Talk(store), ["question", "answer"]
    old, new = PreambleRow(b"old", talk.id, b"[1]", 3), PreambleRow(b"new", talk.id, None, 4)
    await store.write(talk.batch(texts))
    await store.write(Batch(preambles=[old, new]))
    for number, (preamble, expected) in enumerate([(b"old", old), (b"new", new), (None, None)]):
        await answered(store, talk, texts, f"r{number}", preamble=preamble)
        assert (await place(store, talk, texts, ["on"])).preamble == expected


@pytest.mark.parametrize("name", ["_message", "_requests_at", "_later", "_answered", "_any_answered"])
def test_no_look_up_walks_through_a_table(sqlite_store: SqlStore, name: str) -> None:
    statement = getattr(Places(sqlite_store._database.driver.dialect), name)
    connection = sqlite_store._database.driver.connect(read_only=True)
    cursor = connection.cursor()
    cursor.execute(f"EXPLAIN QUERY PLAN {statement.sql}", ("",) * len(statement.names))
    assert not [step for *_, step in cursor.fetchall() if step.startswith("SCAN ")]
    connection.close()
