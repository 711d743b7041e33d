import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.storage.talk import NOW, Talk
from transom.storage import browse
from transom.storage.rows import BaselineRow, Batch, MessageRow, PreambleRow, SessionRow, StepRow, SummaryRow
from transom.storage.sql_store import SqlStore
from transom.storage.store import SessionFilter, StorageError

ANY = SessionFilter()


async def exported(store: SqlStore, talk: Talk) -> list[dict[str, Any]]:
    raw = b"".join([line async for line in store.export(talk.id)])
    return [json.loads(line) for line in raw.splitlines()]


async def completeness(store: SqlStore, talk: Talk) -> list[bool]:
    return [line["complete"] for line in await exported(store, talk) if line["type"] == "message"]


async def test_sessions_are_listed_newest_first_page_by_page(store: SqlStore) -> None:
    talks = [Talk(store) for _ in range(5)]
    for place, talk in enumerate(talks):
        await store.write(talk.batch(["hello"] * place, at=NOW - place))
    first = await store.sessions(ANY, 2)
    assert [told["id"] for told in first.sessions] == [talks[4].id.hex(), talks[3].id.hex()]
    assert [told["messages"] for told in first.sessions] == [4, 3]
    by_cursor = await store.sessions(ANY, 2, first.after)
    by_id = await store.sessions(ANY, 2, talks[3].id.hex())
    assert by_cursor == by_id
    assert [told["id"] for told in by_id.sessions] == [talks[2].id.hex(), talks[1].id.hex()]
    last = await store.sessions(ANY, 2, by_id.after)
    assert ([told["id"] for told in last.sessions], last.after) == ([talks[0].id.hex()], None)


async def test_a_cursor_outlives_the_sessions_it_was_made_from(store: SqlStore) -> None:
    talks = [Talk(store) for _ in range(4)]
    for talk in talks:
        await store.write(talk.batch(["hello"]))
    page = await store.sessions(ANY, 2)
    for talk in talks[2:]:
        await store.delete_session(talk.id)
    rest = await store.sessions(ANY, 2, page.after)
    assert [told["id"] for told in rest.sessions] == [talks[1].id.hex(), talks[0].id.hex()]


@pytest.mark.parametrize("after", ["", "nonsense", "x" * 32, "0" * 32, "-1", "¹"])
async def test_a_place_that_does_not_exist_is_said_to(store: SqlStore, after: str) -> None:
    with pytest.raises(LookupError):
        await store.sessions(ANY, 10, after)


async def test_sessions_are_filtered(store: SqlStore) -> None:
    rows = [
        SessionRow(b"1" * 16, "acme", b"key", "header", b"me", NOW),
        SessionRow(b"2" * 16, "acme", None, "match", b"you", NOW + 10),
        SessionRow(b"3" * 16, "other", None, "match", b"me", NOW + 20),
    ]
    await store.write(Batch(sessions=rows))

    async def listed(**wanted: Any) -> set[str]:
        page = await store.sessions(SessionFilter(**wanted), 10)
        return {told["id"][1] for told in page.sessions}

    assert await listed(tenant="acme") == {"1", "2"}
    assert await listed(user_hash=b"me") == {"1", "3"}
    assert await listed(key_hash=b"key") == {"1"}
    assert await listed(since=NOW + 5) == {"2", "3"}
    assert await listed(until=NOW + 15, since=NOW + 5) == {"2"}
    assert await listed(tenant="nobody") == set()


async def test_one_session_with_its_threads_and_what_was_done(store: SqlStore) -> None:
    talk = Talk(store, user=b"me")
    trunk, branch = ["a", "bb", "ccc"], ["a", "bb", "x", "yy"]
    for texts in (trunk, branch):
        await store.write(talk.batch(texts))
    head = talk.ids(trunk)[-1]
    summary = SummaryRow(b"summary", talk.id, head, 2, None, "text \x00", 3, "m", "1", ("quote",), ("no. 7",))
    await store.write(
        Batch(
            requests=[talk.request(trunk, "r1"), talk.request(branch, "r2", messages_before=4, messages_sent=1)],
            steps=[
                StepRow(talk.id, head, b"", b"policy", b'{"start": 2}'),
                StepRow(talk.id, talk.ids(trunk)[0], b"", b"policy", b"{}"),
                StepRow(talk.id, b"", b"", b"policy", b"{}"),
            ],
            summaries=[summary],
            baselines=[BaselineRow(talk.id, head, 2, "summary", b"", b'{"start": 1}', b"summary")],
        )
    )
    told = await store.session(talk.id)
    assert told is not None
    json.dumps(told)
    root = talk.ids(["a"])[0].hex()
    assert told["threads"] == [
        {"head": talk.ids(branch)[-1].hex(), "root": root, "messages": 4, "tokens": 6},
        {"head": head.hex(), "root": root, "messages": 3, "tokens": 6},
    ]
    assert [row["id"] for row in told["requests"]] == ["r1", "r2"]
    assert [(row["messages_before"], row["messages_sent"]) for row in told["requests"]] == [(None, None), (4, 1)]
    assert [row["head"] for row in told["steps"]] == ["", root, head.hex()]
    assert [row["recipe"] for row in told["steps"]] == [{}, {}, {"start": 2}]
    assert told["summaries"][0]["text"] == "text \x00"
    assert told["summaries"][0]["constraints"] == ["quote"]
    assert told["summaries"][0]["ledger"] == ["no. 7"]
    assert (told["baselines"][0]["at"], told["baselines"][0]["recipe"]) == (head.hex(), {"start": 1})
    assert (told["tenant"], told["user"], len(told["messages"])) == ("acme", b"me".hex(), 5)
    assert await store.session(b"unknown") is None


async def test_requests_are_found_by_either_id(store: SqlStore) -> None:
    one, other = Talk(store), Talk(store, tenant="other")
    await store.write(one.batch(["a"]))
    await store.write(other.batch(["a"]))
    await store.write(Batch(requests=[one.request(["a"], "r1", completion_id="c1")]))
    await store.write(Batch(requests=[other.request(["a"], "r1", completion_id="c2")]))
    assert [row["tenant"] for row in await store.requests("r1")] == ["other", "acme"]
    found = await store.requests("c1")
    assert [(row["session"], row["completion_id"]) for row in found] == [(one.id.hex(), "c1")]
    assert await store.requests("nothing") == []


async def test_a_request_written_again_says_the_newer(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["a"]))
    await store.write(Batch(requests=[talk.request(["a"], status=None, at=NOW)]))
    await store.write(Batch(requests=[talk.request(["a"], status=200, complete=True, at=NOW + 1)]))
    [row] = await store.requests("request-1")
    assert (row["status"], row["complete"], row["created_at"]) == (200, True, NOW)


async def test_an_export_holds_the_whole_session(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "EXPORT_ROWS", 2)
    talk, texts = Talk(store), ["a", "b", "c", "d", "e"]
    await store.write(talk.batch(texts))
    await store.write(
        Batch(
            preambles=[PreambleRow(b"p", talk.id, b'[{"role":"system"}]', 1)],
            requests=[talk.request(texts, preamble=b"p")],
            summaries=[SummaryRow(b"s", talk.id, talk.ids(texts)[0], 0, None, "t", 1, "m", "1")],
        )
    )
    lines = await exported(store, talk)
    assert [line["type"] for line in lines] == ["session", "preamble", *["message"] * 5, "summary", "request"]
    ids = [identity.hex() for identity in talk.ids(texts)]
    messages = [line for line in lines if line["type"] == "message"]
    assert [line["id"] for line in messages] == ids
    assert [line["parent"] for line in messages] == [None, *ids[:-1]]
    assert [line["message"]["content"] for line in messages] == texts
    assert lines[1]["messages"] == [{"role": "system"}]
    assert await exported(store, Talk(store)) == []


async def test_an_export_keeps_the_clients_bytes_on_one_line(store: SqlStore) -> None:
    talk = Talk(store)
    payload = b'{"role": "user",\r\n "content": "1e400 \\n \xf0\x9f\x98\x80", "n": 123456789012345678901234567890}'
    rows = [
        MessageRow(b"1" * 16, talk.id, None, payload, 1, 1, "user"),
        MessageRow(b"2" * 16, talk.id, b"1" * 16, None, 1, 1, "user"),
    ]
    await store.write(Batch(sessions=[talk.row()], messages=rows))
    lines = [line async for line in store.export(talk.id)]
    assert payload.replace(b"\r\n", b"  ") in lines[1]
    assert [line.count(b"\n") for line in lines] == [1, 1, 1]
    assert json.loads(lines[2])["message"] is None


async def test_a_reply_is_incomplete_only_if_nothing_made_it_whole(store: SqlStore) -> None:
    talk, texts = Talk(store), ["question", "half an answ"]
    await store.write(talk.batch(texts))
    reply = talk.ids(texts)[1]
    assert await completeness(store, talk) == [True, True]
    broken = talk.request(texts[:1], "r1", reply=reply, complete=False)
    await store.write(Batch(requests=[broken]))
    assert await completeness(store, talk) == [True, False]
    await store.write(Batch(requests=[talk.request(texts[:1], "r2", reply=reply, complete=True)]))
    assert await completeness(store, talk) == [True, True]


async def test_a_reply_that_the_client_went_on_from_is_complete(store: SqlStore) -> None:
    talk, texts = Talk(store), ["question", "half an answ", "go on"]
    await store.write(talk.batch(texts[:2]))
    choice = MessageRow(b"c" * 16, talk.id, talk.ids(texts)[0], b"{}", 1, 1, "assistant")
    reply = talk.ids(texts)[1] + choice.id
    await store.write(Batch(messages=[choice], requests=[talk.request(texts[:1], reply=reply)]))
    assert await completeness(store, talk) == [True, False, False]
    await store.write(talk.batch(texts, 2))
    assert await completeness(store, talk) == [True, True, False, True]


async def test_stats_count_rows_and_bytes(store: SqlStore) -> None:
    talk = Talk(store)
    await store.write(talk.batch(["a", "b"]))
    stats = await store.stats()
    assert (stats["sessions"], stats["messages"], stats["steps"]) == (1, 2, 0)
    assert stats["bytes"] > 10_000


async def test_a_thousand_turns_take_at_most_thrice_their_export(store: SqlStore) -> None:
    talk = Talk(store)
    texts = [f"message {place}: " + "words and more words " * 8 for place in range(2000)]
    before = (await store.stats())["bytes"]
    await store.write(talk.batch(texts))
    ids, rows = talk.ids(texts), Batch()
    recipe = b'{"start":12,"head":[0,3],"labels":["cut"],"summary":"' + b"5" * 32 + b'"}'
    for turn in range(1000):
        question, answer = ids[2 * turn], ids[2 * turn + 1]
        rows.requests.append(
            talk.request(
                texts[: 2 * turn + 1] if turn < 3 else texts[:1],
                f"{turn:032x}",
                reply=answer,
                completion_id=f"chatcmpl-{turn:024x}",
                window="replayed",
                usage_prompt=3000,
                tokens_before=40_000,
                tokens_sent=3000,
                token_limit=4000,
            )
        )
        rows.steps.append(StepRow(talk.id, question, b"p" * 16, b"f" * 16, recipe))
    await store.write(rows)
    size = (await store.stats())["bytes"] - before
    export = sum([len(line) async for line in store.export(talk.id)])
    history = sum([len(line) async for line in store.export(talk.id) if b'"message"' in line[:20]])
    assert size <= 3 * export
    assert size <= 3 * history + 1000 * 1000


async def test_a_listing_of_a_broken_database_is_a_storage_error(sqlite_store: SqlStore, sqlite_file: Path) -> None:
    with sqlite3.connect(sqlite_file) as stranger:
        stranger.execute("DROP TABLE audit")
    stranger.close()
    with pytest.raises(StorageError) as caught:
        await sqlite_store.stats()
    assert str(caught.value) == "storage: stats: failed"
    assert caught.value.__cause__ is None


async def test_a_listing_has_a_deadline(sqlite_store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sqlite_store._browser, "_timeout_s", 0.0)
    with pytest.raises(StorageError, match="too slow"):
        await sqlite_store.sessions(ANY, 10)


async def test_a_cancelled_listing_leaves_no_connection_behind(store: SqlStore) -> None:
    listing = asyncio.ensure_future(store.sessions(ANY, 10))
    await asyncio.sleep(0)
    listing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listing
    assert (await store.sessions(ANY, 10)).sessions == []


async def test_words_that_are_not_unicode_are_looked_up_like_any_other(store: SqlStore) -> None:
    for odd in ("half \ud83d", "nul \x00"):
        outcomes = await asyncio.gather(store.requests(odd), return_exceptions=True)
        assert not outcomes[0] or isinstance(outcomes[0], StorageError)
        assert odd not in str(outcomes[0])
