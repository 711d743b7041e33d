"""Deltas that fail, come again, or come at once; while storage is down; after a kill; and what one costs."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from typing import Any
from uuid import uuid4

import pytest
from openai import OpenAI

from tests.proxy.e2e.conftest import POLICIES, Serve
from tests.proxy.e2e.fake_upstream import Abort, Answer, FakeUpstream, Gate, completion, ordinary, spoken, stream
from tests.proxy.e2e.served import Proxy, config, request, serving, user
from tests.proxy.e2e.test_clients_that_leave import leaving
from tests.proxy.e2e.test_compress import until
from tests.proxy.e2e.test_deltas import CONFLICT, SYSTEM, Deltas, head_of
from tests.proxy.e2e.test_killed import Killable, killable  # noqa: F401 - a fixture
from tests.proxy.e2e.test_storage_fails import locked, replace_database
from transom.storage.store import StorageError


@pytest.fixture(scope="module")
def keeper(running_upstream: FakeUpstream, database_url: str) -> Iterator[Proxy]:
    """Run a proxy on SQLite or PostgreSQL."""
    with serving(config(running_upstream.url, POLICIES, database=database_url)) as proxy:
        yield proxy


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("again", ["Two.", "Something else."])
def test_a_turn_that_was_not_answered_leaves_the_head_where_it_was(
    serve: Serve, upstream: FakeUpstream, again: str, restart: bool
) -> None:
    proxy = serve()
    talk = Deltas(proxy)
    for text in ("One.", "Two."):
        upstream.on("plain", Answer([b"{}"], status=500), ordinary)
        assert talk.send(user(text)).status == 500
        if restart:
            proxy.close()
            proxy = talk.proxy = serve()
        assert talk.send(user(again if text == "Two." else text)).status == 200
    assert upstream.received[-1].texts == ["One.", "Answer 1.", again]


def test_an_answer_cut_off_is_not_gone_on_from(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk = Deltas(keeper)
    talk.send(user("One."))
    talk.more, head = {"stream": True}, talk.head
    upstream.on("plain", stream([*spoken("Half an ans", "wer.")[:2], Abort()]), ordinary)
    assert head_of(talk.send(user("Two."))) is None
    half = next(line for line in talk.lines if not line["complete"])
    assert talk.send(user("Three."), parent=half["id"]).error == CONFLICT
    assert talk.send(user("Two."), parent=head).status == 200
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two."]


SIGNS = [{"x_stainless_retry_count": "1"}, {"idempotency_key": "turn-2"}]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("sign", SIGNS, ids=["counter", "key"])
def test_the_same_turn_again(serve: Serve, upstream: FakeUpstream, sign: dict[str, str], restart: bool) -> None:
    proxy = serve()
    talk = Deltas(proxy)
    talk.send(SYSTEM, user("One."))
    parent = talk.head
    first = talk.send(user("Two."), idempotency_key="turn-2")
    if restart:
        proxy.close()
        talk.proxy = serve()
    second = talk.send(user("Two."), parent=parent, **sign)
    assert (second.status, second.window) == (200, ["replayed"])
    assert head_of(second) == head_of(first)
    assert upstream.received[-1].body == upstream.received[-2].body
    assert talk.texts == ["One.", "Answer 2.", "Two.", "Answer 4."]
    assert talk.send(user("Three."), parent=parent, **sign).error == CONFLICT
    assert talk.send(user("Two."), parent=parent, idempotency_key="another").error == CONFLICT
    assert talk.send(user("Two."), parent=parent, x_stainless_retry_count="0").error == CONFLICT


@pytest.mark.parametrize("sign", SIGNS, ids=["counter", "key"])
def test_the_first_turn_again(keeper: Proxy, upstream: FakeUpstream, sign: dict[str, str]) -> None:
    talk = Deltas(keeper)
    talk.send(SYSTEM, user("One."), idempotency_key="turn-2")
    talk.head = None
    assert talk.send(SYSTEM, user("One."), **sign).status == 200
    assert talk.texts == ["One.", "Answer 2."]


def test_two_turns_at_once_from_one_head(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk, hold = Deltas(keeper), Gate()
    talk.send(user("One."))
    parent = talk.head
    upstream.on("plain", Answer([completion("Held.")], before=hold), ordinary)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(talk.send, user("Two."), parent=parent, idempotency_key="k")
        until(lambda: len(upstream.received) == 2)
        assert talk.send(user("Other two."), parent=parent).error == CONFLICT
        assert talk.send(user("Two."), parent=parent).error == CONFLICT
        for sign in ({"idempotency_key": "k"}, {"x_stainless_retry_count": "2"}):
            assert talk.send(user("Two."), parent=parent, **sign).status == 200
        hold.open()
        assert waiting.result().status == 200
    assert talk.texts == ["One.", "Answer 1.", "Two.", "Answer 3.", "Held."]


def test_a_turn_while_the_one_before_is_asked_again(keeper: Proxy, upstream: FakeUpstream) -> None:
    talk, hold = Deltas(keeper), Gate()
    talk.send(user("One."))
    upstream.on("plain", Answer([completion("Another answer.")], before=hold), ordinary)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(talk.send, user("One."), parent="none", x_stainless_retry_count="1")
        until(lambda: len(upstream.received) == 2)
        assert talk.send(user("Two.")).status == 200
        assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two."]
        hold.open()
        other = head_of(again.result())
    assert talk.send(user("Other two."), parent=other).status == 200
    assert upstream.received[-1].texts == ["One.", "Another answer.", "Other two."]


def test_a_client_that_leaves_while_its_thread_is_looked_up(
    serve: Serve, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn is not under way for ever."""
    proxy = serve()
    talk = Deltas(proxy)
    talk.send(user("One."))
    proxy.close()
    talk.proxy = proxy = serve()
    assert proxy.transom is not None
    waiting: list[asyncio.Future[None]] = []

    async def load(*_: Any) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    body = b'{"model":"plain","messages":[{"role":"user","content":"Two."}]}'
    parent = f"X-Session-History: delta\r\nX-Transom-Parent: {talk.head}"
    with monkeypatch.context() as patch:
        patch.setattr(proxy.transom.store, "load", load)
        with closing(leaving(proxy, body, f"{talk.session}\r\n{parent}")):
            until(lambda: waiting)
        until(waiting[0].cancelled)
    until(lambda: not proxy.under_way)
    assert talk.send(user("Another two.")).status == 200


# ---------------------------------------------------------------------- storage, kills, and what it costs
def test_d15_never_without_its_history(serve: Serve, upstream: FakeUpstream) -> None:
    talk = Deltas(serve(storage={"timeout_s": 0.3, "commit_wait_s": 0.3}))
    fresh = Deltas(talk.proxy)
    talk.send(user("One."))
    with locked(talk.proxy):
        for one in (talk, fresh):
            upstream.received.clear()
            got = one.send(user("Two."))
            assert got.error == (503, "storage_unavailable", None)
            assert "retry-after" in got.headers
            assert upstream.received == []
    until(lambda: talk.send(user("Two.")).status == 200)
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two."]
    replace_database(talk.proxy)
    for one in (talk, fresh, Deltas(talk.proxy)):
        assert one.send(user("Three.")).error == (503, "storage_unavailable", None)
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two."]


@pytest.mark.parametrize("look_up", ["place", "thread"])
def test_d15_where_the_history_would_have_to_be_read(
    serve: Serve, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, look_up: str
) -> None:
    proxy = serve()
    talk = Deltas(proxy)
    talk.send(SYSTEM, user("One."))
    proxy.close()
    talk.proxy = serve()
    assert talk.proxy.transom is not None

    async def fail(*_: Any) -> Any:
        raise StorageError(look_up)

    with monkeypatch.context() as patch:
        patch.setattr(talk.proxy.transom.store, look_up, fail)
        assert talk.send(user("Two.")).error == (503, "storage_unavailable", None)
    assert talk.send(user("Two.")).status == 200
    assert upstream.received[-1].texts == ["Be brief.", "One.", "Answer 2.", "Two."]
    assert len(upstream.received) == 2


def test_an_answer_that_could_not_be_stored(serve: Serve, upstream: FakeUpstream) -> None:
    talk, hold = Deltas(serve(storage={"timeout_s": 0.3, "commit_wait_s": 0.3})), Gate()
    upstream.on("plain", Answer([completion("Held.")], before=hold), ordinary)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(talk.send, user("One."))
        until(lambda: upstream.received)
        with locked(talk.proxy):
            hold.open()
            assert waiting.result().headers["x-transom-storage"] == "failed"
    until(lambda: talk.send(user("Two.")).status == 200)
    assert upstream.received[-1].texts == ["One.", "Held.", "Two."]
    assert talk.texts == ["One.", "Held.", "Two.", "Answer 3."]


def test_a_turn_costs_the_same_however_long_the_history(
    serve: Serve, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is read, counted and handed over once, and nothing of a thread at hand is read from the database."""
    talk = Deltas(serve(limits={"history_cache_mb": 64}), "cut")
    talk.send(SYSTEM, user("One."))
    talk.send(user("Two."))
    assert talk.proxy.transom is not None
    store, read, written, calls = talk.proxy.transom.store, [], [], []
    parse, write, look_up = talk.proxy.transom._recorder._parse, store.write, store._readers.call

    async def parsed(slices: Any, start: int) -> Any:
        read.append(len(slices))
        return await parse(slices, start)

    def wrote(batch: Any) -> Any:
        written.append(len(batch.messages))
        return write(batch)

    async def looked_up(operation: str, work: Any) -> Any:
        calls.append(operation)
        return await look_up(operation, work)

    monkeypatch.setattr(talk.proxy.transom._recorder, "_parse", parsed)
    monkeypatch.setattr(store, "write", wrote)
    monkeypatch.setattr(store._readers, "call", looked_up)
    for turn in range(30):
        assert talk.send(user(f"Sentence {turn}.")).status == 200
    assert (sum(read), sum(written)) == (30, 60)
    assert set(calls) <= {"factors"}


def test_killed_while_the_model_answers(
    killable: Killable,  # noqa: F811
    upstream: FakeUpstream,
) -> None:
    head = {"authorization": "Bearer key-of-acme", "x-session-id": "s", "x-session-history": "delta"}

    def ask(text: str, **more: str) -> Any:
        body = {"model": "plain", "messages": [user(text)]}
        return request(killable.port, body=body, headers=head | {k.replace("_", "-"): v for k, v in more.items()})

    killable.start()
    parent = head_of(ask("One."))
    assert parent is not None
    upstream.on("plain", Answer([completion("Lost.")], before=Gate()), ordinary)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(ask, "Two.", x_transom_parent=parent)
        until(lambda: len(upstream.received) == 2)
        killable.kill()
        with pytest.raises((OSError, HTTPException)):
            lost.result()
    killable.start()
    again = ask("Two.", x_transom_parent=parent, x_stainless_retry_count="1")
    assert (again.status, again.window) == (200, ["replayed"])
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two."]
    assert ask("Three.", x_transom_parent=str(head_of(again))).status == 200
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two.", "Answer 3.", "Three."]


def test_openais_own_client(keeper: Proxy, upstream: FakeUpstream) -> None:
    session = {"X-Session-Id": uuid4().hex, "X-Session-History": "delta"}
    with OpenAI(
        base_url=f"http://127.0.0.1:{keeper.port}/v1", api_key="key-of-acme", default_headers=session
    ) as client:
        create = client.chat.completions
        first = create.with_raw_response.create(model="plain", messages=[{"role": "user", "content": "One."}])
        parent = {"X-Transom-Parent": first.headers["x-transom-head"]}
        messages: Any = [{"role": "user", "content": "Two."}]
        with create.with_streaming_response.create(
            model="plain", messages=messages, stream=True, extra_headers=parent
        ) as streamed:
            lines = list(streamed.iter_lines())
        upstream.on("plain", Answer([b"{}"], status=500), ordinary)
        parent = {"X-Transom-Parent": next(x for x in lines if x.startswith(": x-transom-head=")).partition("=")[2]}
        answer = create.create(model="plain", messages=messages, extra_headers=parent)
    assert answer.choices[0].message.content == "Answer 5."
    assert upstream.received[-1].texts == ["One.", "Answer 1.", "Two.", "Answer 3.", "Two."]
