"""A database that is locked, gone or replaced: requests are served all the same, or refused, as configured."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Gate, completion, ordinary, say, spoken, stream
from tests.proxy.e2e.served import Proxy, Talk, assistant, user
from tests.proxy.e2e.test_compress import over, summarising, until

OPERATIONS = ("write", "ping", "sessions")
SHORT = {"timeout_s": 0.3, "commit_wait_s": 0.3}


@contextmanager
def locked(proxy: Proxy) -> Iterator[None]:
    """Hold the database's write lock."""
    with closing(sqlite3.connect(proxy.database, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def replace_database(proxy: Proxy) -> None:
    """Put another file where the database was: from then on every storage call fails."""
    proxy.database.rename(proxy.database.with_suffix(".away"))
    proxy.database.write_bytes(b"")


@pytest.fixture
def going_on(serve: Serve) -> Proxy:
    return serve(storage=SHORT)


@pytest.fixture
def strict(serve: Serve) -> Proxy:
    return serve(storage=SHORT | {"on_error": "fail"})


def test_a_locked_database_is_not_the_clients_matter(going_on: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(going_on, "plain", "locked")
    talk.say("One.")
    with locked(going_on):
        got = talk.say("Two.")
        assert got.headers["x-transom-storage"] == "failed"
        talk.more = {"stream": True}
        talk.messages.append(user("Three."))
        upstream.on("plain", stream([*spoken("Three it is."), DONE]))
        streamed = talk.send()
        assert streamed.status == 200
        assert b"\n: x-transom-storage=failed\ndata: [DONE]" in streamed.body or streamed.headers.get(
            "x-transom-storage"
        )
    upstream.on("plain", ordinary)
    talk.more = {}
    talk.messages.append({"role": "assistant", "content": "Three it is."})
    until(lambda: "x-transom-storage" not in talk.send().headers)
    talk.messages.append(user("Four."))
    until(lambda: "x-transom-storage" not in talk.send().headers)
    texts = [row["payload"] for row in going_on.rows("locked").messages]
    for text in (b"One.", b"Two.", b"Three.", b"Three it is.", b"Four."):
        assert any(text in payload for payload in texts), text
    assert [len(r.messages) for r in upstream.to("plain")][-1] == len(talk.messages)
    assert going_on.metric("transom_storage_errors_total") > 0


def test_the_end_of_an_answer_waits_only_so_long(going_on: Proxy, upstream: FakeUpstream) -> None:
    hold = Gate()
    upstream.on("plain", Answer([completion("Held.")], before=hold))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Talk(going_on, "plain", "late-lock").say, "Hello.")
        until(lambda: going_on.rows("late-lock").messages)
        with locked(going_on):
            hold.open()
            got = waiting.result()
    assert got.message["content"] == "Held."
    assert got.headers["x-transom-storage"] == "failed"


def test_a_locked_database_refuses_where_it_must(strict: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(strict, "plain", "strict")
    talk.messages.append(user("One."))
    until(lambda: talk.send().status == 200)
    talk.messages.append(assistant("Answer 1."))
    upstream.received.clear()
    with locked(strict):
        got = talk.say("Two.")
        assert got.error == (503, "storage_unavailable", None)
        assert int(got.headers["retry-after"]) > 0
        assert upstream.received == []
    until(lambda: talk.send().status == 200)
    assert len(strict.rows("strict").messages) == 4


@pytest.mark.parametrize("session", ["replaced", None])
def test_a_database_that_is_gone(going_on: Proxy, upstream: FakeUpstream, session: str | None) -> None:
    replace_database(going_on)
    talk = Talk(going_on, "fill", session)
    for turn in range(4):
        got = talk.say(f"Sentence {turn}.")
        assert got.status == 200
        assert got.headers["x-transom-storage"] == "failed"
    assert going_on.get("/healthz").status == 200


def test_reads_that_fail_are_counted_as_writes_are(going_on: Proxy) -> None:
    Talk(going_on, "plain", "counted").say("Hello.")
    before = going_on.metric("transom_storage_errors_total")
    replace_database(going_on)
    Talk(going_on, "plain", "elsewhere").say("Hello.")
    for path in ("/readyz", "/admin/sessions"):
        going_on.get(path)
    failed = {name: going_on.metric(f'transom_storage_errors_total{{operation="{name}"}}') for name in OPERATIONS}
    assert before == 0
    assert all(failed.values()), failed


@pytest.mark.parametrize(
    ("on_error", "answer"), [("continue", (200, "degraded")), ("fail", (503, "storage unavailable"))]
)
def test_readiness_knows_that_nothing_can_be_written(serve: Serve, on_error: str, answer: tuple[int, str]) -> None:
    proxy = serve(storage=SHORT | {"on_error": on_error})
    replace_database(proxy)
    Talk(proxy, "plain", "s").say("Hello.")
    ready = proxy.get("/readyz")
    assert (ready.status, ready.json["status"]) == answer


def test_while_storage_fails_requests_are_cut_but_not_summarised(going_on: Proxy, upstream: FakeUpstream) -> None:
    replace_database(going_on)
    talk = Talk(going_on, "fill", "unsummarised")
    assert talk.say("Hello.").headers["x-transom-storage"] == "failed"
    talk.messages += over()
    got = talk.send()
    assert (got.status, got.window) == (200, ["cut"])
    assert got.headers["x-transom-storage"] == "failed"
    assert upstream.summary_calls() == []


def test_a_database_that_is_gone_refuses_where_it_must(strict: Proxy, upstream: FakeUpstream) -> None:
    replace_database(strict)
    assert Talk(strict, "plain", "s").say("Hello.").error[:2] == (503, "storage_unavailable")
    assert Talk(strict, "plain").say("Hello.").error[:2] == (503, "storage_unavailable")
    assert upstream.received == []


EXPORT = pytest.param(
    "/admin/sessions/00/export",
)


@pytest.mark.parametrize("path", ["/admin/sessions", "/admin/sessions/00", EXPORT, "/admin/requests/x"])
def test_the_admin_api_says_so(going_on: Proxy, path: str) -> None:
    replace_database(going_on)
    assert going_on.get(path).error[:2] == (503, "storage_unavailable")


def test_a_summary_that_could_not_be_stored_is_stored_later(serve: Serve, upstream: FakeUpstream) -> None:
    """What later steps refer to must be there after a restart: else the same request sends other bytes."""
    upstream.number_summaries("fill")
    proxy = serve(storage=SHORT)
    talk = Talk(proxy, "fill", "unstored")
    talk.say("Hello.")
    talk.messages += over()
    with locked(proxy):
        got = talk.send()
        assert got.window in (["compressed"], ["cut"])
        assert got.headers["x-transom-storage"] == "failed"
    talk.messages.append(got.message)
    until(lambda: "x-transom-storage" not in talk.send().headers)
    talk.messages.append(user("Go on."))
    until(lambda: "x-transom-storage" not in talk.send().headers)
    proxy.close()
    talk._proxy = serve()
    talk.send()
    before, after = upstream.to("fill")[-2:]
    assert after.body == before.body


def test_a_locked_database_does_not_stop_others(going_on: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("fill", summarising(say("Short.")))
    with locked(going_on), ThreadPoolExecutor(8) as pool:
        talks = [Talk(going_on, "plain", f"crowd-{i}") for i in range(16)]
        assert {g.status for g in pool.map(lambda t: t.say("Hello."), talks)} == {200}


def test_a_second_process_on_the_same_file_is_refused(going_on: Proxy, serve: Serve) -> None:
    with pytest.raises(Exception, match="another process"):
        serve(storage=SHORT)
