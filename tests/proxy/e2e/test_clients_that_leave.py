"""A client that leaves ends its upstream call at once; what had come is kept as incomplete and never sent on."""

import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream, Gate, completion, event, ordinary, stream
from tests.proxy.e2e.served import Proxy, Talk, user
from tests.proxy.e2e.test_compress import over, summarising, until
from tests.proxy.e2e.test_storage_fails import locked

HELLO = b'{"model":"plain","stream":%s,"messages":[{"role":"user","content":"Hello."}]}'


def leaving(proxy: Proxy, body: bytes, session: str) -> socket.socket:
    """Send a request and return the connection, to be closed."""
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-of-acme\r\n"
        f"X-Session-Id: {session}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("streamed", [b"true", b"false"])
def test_one_that_leaves_before_the_headers(proxy: Proxy, upstream: FakeUpstream, streamed: bytes) -> None:
    never = Gate()
    upstream.on("plain", stream([], before=never))
    session = f"early-{streamed.decode()}"
    with closing(leaving(proxy, HELLO % streamed, session)):
        until(lambda: upstream.received)
    until(upstream.received[0].gone.is_set)
    until(lambda: proxy.rows(session).requests)
    rows = proxy.rows(session)
    assert [r["complete"] for r in rows.requests] == [0]
    assert [r["role"] for r in rows.messages] == ["user"]


def test_one_that_leaves_in_the_middle(proxy: Proxy, upstream: FakeUpstream) -> None:
    never = Gate()
    upstream.on("plain", stream([event({"role": "assistant", "content": "Half a "}), never]), ordinary)
    with closing(leaving(proxy, HELLO % b"true", "middle")) as connection:
        seen = b""
        while b"Half a " not in seen:
            seen += connection.recv(4096)
    until(upstream.received[0].gone.is_set)
    until(lambda: len(proxy.rows("middle").messages) == 2)
    rows = proxy.rows("middle")
    assert [r["complete"] for r in rows.requests] == [0]
    assert b"Half a " in rows.messages[1]["payload"]
    talk = Talk(proxy, "plain", "middle")
    talk.messages = [user("Hello.")]
    assert talk.send().status == 200
    assert upstream.received[-1].texts == ["Hello."]
    exported = proxy.get(f"/admin/sessions/{proxy.session_id('middle').hex()}/export").body
    lines = [json.loads(line) for line in exported.splitlines()]
    whole = {line["message"]["content"]: line["complete"] for line in lines if line["type"] == "message"}
    assert whole == {"Hello.": True, "Half a ": False, "Answer 1.": True}


def test_one_that_leaves_while_it_waits_for_a_summary(proxy: Proxy, upstream: FakeUpstream) -> None:
    hold = Gate()
    upstream.on("fill", summarising(lambda _: Answer([completion("Kept.")], before=hold)))
    talk, failed = Talk(proxy, "fill", "waited"), proxy.metric("transom_storage_errors_total")
    talk.messages = over(name="Waiting")
    body = json.dumps({"model": "fill", "messages": talk.messages}).encode()
    with closing(leaving(proxy, body, "waited")):
        until(upstream.summary_calls)
    until(lambda: proxy.under_way == 0)
    until(lambda: [r["status"] for r in proxy.rows("waited").requests] == [499])
    assert proxy.metric("transom_storage_errors_total") == failed
    hold.open()
    until(lambda: proxy.rows("waited").summaries)  # what is paid for is kept
    assert talk.send().status == 200
    assert len(upstream.summary_calls()) == 1
    assert "Kept." in upstream.to("fill")[-1].summaries[0]


def test_nothing_is_held_by_those_who_left(proxy: Proxy, upstream: FakeUpstream) -> None:
    never = Gate()
    upstream.on("plain", stream([event({"content": "Half"}), never]))
    connections = [leaving(proxy, HELLO % b"true", f"many-{i}") for i in range(20)]
    until(lambda: len(upstream.received) == 20)
    for connection in connections:
        connection.close()
    until(lambda: all(r.gone.is_set() for r in upstream.received))
    assert proxy.transom is not None
    in_flight = proxy.transom._in_flight
    until(lambda: (in_flight.requests, in_flight.bytes) == (0, 0))
    upstream.on("plain", ordinary)
    with ThreadPoolExecutor(4) as pool:
        body = {"model": "plain", "messages": [user("Hello.")]}
        assert {g.status for g in pool.map(proxy.post, [body] * 8)} == {200}


def test_one_that_leaves_while_an_error_is_recorded_is_no_fault(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(storage={"timeout_s": 60, "commit_wait_s": 60})
    upstream.on("plain", Answer([b"<html>"], headers={"content-type": "text/html"}))
    assert Talk(proxy, "plain", "warm").say("Hello.").status == 502
    faults: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: faults.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("uvicorn.error").addHandler(handler)
    try:
        with locked(proxy):
            with closing(leaving(proxy, HELLO % b"false", "error")):
                until(lambda: len(upstream.received) == 2)
                time.sleep(0.2)  # until its rows wait for the lock
            until(lambda: proxy.metric('transom_requests_total{endpoint="chat",model="plain",status="499"') == 1)
    finally:
        logging.getLogger("uvicorn.error").removeHandler(handler)
    assert faults == []
