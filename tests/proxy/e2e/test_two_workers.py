"""Two processes on one PostgreSQL database: one summary a fold, one decision a request, whoever is asked."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest
from sqlalchemy import make_url

from tests.proxy.e2e.conftest import POLICIES
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream, Gate, completion
from tests.proxy.e2e.served import Proxy, Talk, assistant, config, long_text, serving, user
from tests.proxy.e2e.test_compress import over, summarising, until
from tests.proxy.e2e.test_deltas import Deltas


@pytest.fixture(scope="module")
def workers(running_upstream: FakeUpstream, database_url: str) -> Iterator[list[Proxy]]:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite is one process")
    policies = POLICIES | {"ahead": POLICIES["fill"] | {"compact_at": 0.8}}
    mapping = config(running_upstream.url, policies, database=database_url)
    with ExitStack() as stack:
        yield [stack.enter_context(serving(mapping)) for _ in range(2)]


def test_a_conversation_may_change_its_worker(workers: list[Proxy], upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    talk = Talk(workers[0], "fill", "wanders")
    for turn in range(16):
        talk._proxy = workers[turn % 2]
        got = talk.say(f"Turn {turn}: " + "water and stone and " * 40)
        assert got.status == 200
        assert got.tokens["sent"] <= 1200
    calls = upstream.summary_calls()
    assert calls
    assert all("PREVIOUS SUMMARY" in c.texts[1] for c in calls[1:])
    exported = workers[0].get(f"/admin/sessions/{workers[0].session_id('wanders').hex()}").json
    assert len(exported["requests"]) == 16


def test_the_other_worker_sends_the_same(workers: list[Proxy], upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    body = {"model": "fill", "messages": over(name="Other")}
    windows = [worker.post(body, x_session_id="other").window for worker in workers]
    assert windows == [["compressed"], ["replayed", "compressed"]]
    assert len({r.body for r in upstream.to("fill")}) == 1


def test_a_recorded_decision_is_looked_up_for_what_was_stored_before(
    workers: list[Proxy], upstream: FakeUpstream
) -> None:
    looks, talk = 'transom_storage_duration_seconds_count{operation="step"', Talk(workers[0], "fill", "looks")
    before = [worker.metric(looks) for worker in workers]
    for turn in range(3):
        assert talk.say(f"Turn {turn}.").window == ["fits"]
    body = {"model": "fill", "messages": talk.messages[:-1]}
    assert workers[1].post(body, x_session_id="looks").window == ["replayed"]
    assert [worker.metric(looks) for worker in workers] == [before[0], before[1] + 1]


def test_equal_requests_at_once_send_the_same_from_both(workers: list[Proxy], upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    for name in ("once", "twice", "thrice"):
        upstream.received.clear()
        body = {"model": "fill", "messages": over(name=name)}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda w, body=body, name=name: w.post(body, x_session_id=name), workers * 4))
        assert len(upstream.summary_calls()) == 1
        assert len({r.body for r in upstream.to("fill")}) == 1


def test_afterwards_both_go_on_from_one_summary(workers: list[Proxy], upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    messages = over(name="After")
    workers[0].post({"model": "fill", "messages": messages}, x_session_id="after")
    longer = {"model": "fill", "messages": [*messages, assistant("Fine."), user("On.")]}
    for worker in workers:
        assert worker.post(longer, x_session_id="after").status == 200
    assert len(upstream.summary_calls()) == 1
    first, second = upstream.to("fill")[1:]
    assert first.body == second.body


def test_a_fold_ahead_of_need_serves_the_other_worker_too(workers: list[Proxy], upstream: FakeUpstream) -> None:
    """Whoever is over the limit waits for it as long as it takes, and no longer."""
    hold, lease = Gate(), 'transom_storage_duration_seconds_count{operation="lease"'
    upstream.on("ahead", summarising(lambda _: Answer([completion("Held.")], before=hold)))
    talk, sent = Talk(workers[0], "ahead", "ahead"), 0
    while sent < 0.8 * 1200:
        sent = talk.say(long_text(f"Turn {len(talk.messages)}", 120)).tokens["sent"]
    until(upstream.summary_calls)
    body = {"model": "ahead", "messages": [*talk.messages, user(long_text("And now", 300))]}
    leases = workers[1].metric(lease)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(workers[1].post, body, x_session_id="ahead")
        until(lambda: workers[1].metric(lease) > leases)
        hold.open()
        assert waiting.result().window == ["fits"]
    assert workers[0].post(body, x_session_id="ahead").window == ["replayed"]
    assert len(upstream.summary_calls()) == 1
    theirs, ours = upstream.to("ahead")[-2:]
    assert theirs.summaries
    assert ours.body == theirs.body


def test_whoever_asks_while_a_lease_is_being_taken_joins(
    workers: list[Proxy], upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.number_summaries("fill")
    worker, both = workers[0], threading.Event()
    assert worker.transom is not None
    take = worker.transom.store.lease

    async def slowly(session: bytes, root: bytes, holder: str, seconds: float) -> bool:
        await asyncio.to_thread(both.wait, 60)
        return await take(session, root, holder, seconds)

    monkeypatch.setattr(worker.transom.store, "lease", slowly)
    messages = over(name="Lease")
    bodies = [{"model": "fill", "messages": [{"role": "system", "content": c}, *messages]} for c in ("Brief.", "Long.")]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(worker.post, body, x_session_id="lease") for body in bodies]
        until(lambda: worker.under_way == 2)
        time.sleep(0.1)
        both.set()
        assert len({got.result().tokens["sent"] for got in waiting}) == 1
    assert len(upstream.summary_calls()) == 1


def test_what_a_killed_worker_was_folding_is_folded_by_another(
    workers: list[Proxy], upstream: FakeUpstream, database_url: str
) -> None:
    upstream.number_summaries("fill")
    messages = over(name="Killed")
    workers[0].post({"model": "fill", "messages": messages[:1]}, x_session_id="killed")
    session = workers[0].session_id("killed").hex()
    left = (
        "INSERT INTO leases SELECT s.id, m.id, 'killed', extract(epoch from clock_timestamp()) + 1 "
        "FROM sessions s JOIN messages m ON m.session = s.seq WHERE s.id = %s AND m.parent IS NULL"
    )
    server = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as connection:
        assert connection.execute(left, (session,)).rowcount == 1
    got = workers[0].post({"model": "fill", "messages": messages}, x_session_id="killed")
    assert got.window == ["compressed"]


def test_deltas_may_change_their_worker(workers: list[Proxy], upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    talk = Deltas(workers[0], "fill", "delta-wanders")
    heads = []
    for turn in range(16):
        talk.proxy = workers[turn % 2 if turn < 8 else turn // 3 % 2]
        got = talk.send(user(long_text(f"Turn {turn}", 150)))
        assert got.status == 200, got.body
        assert got.tokens["sent"] <= 1200
        heads.append(talk.head)
    assert len(talk.texts) == 32
    for worker in workers:
        talk.proxy = worker
        assert talk.send(user("Late."), parent=heads[-2]).error[:2] == (409, "session_conflict")
        again = talk.send(user(long_text("Turn 15", 150)), parent=heads[-2], x_stainless_retry_count="1")
        assert (again.status, again.window[0]) == (200, "replayed")
    workers[0].get(f"/admin/sessions/{workers[0].session_id('delta-wanders').hex()}", method="DELETE")
    for worker in workers:
        talk.proxy = worker
        assert talk.send(user("On."), parent=heads[-1]).error[:2] == (404, "session_not_found")
