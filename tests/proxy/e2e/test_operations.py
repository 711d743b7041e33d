"""What an operator uses: health, metrics, the list of sessions, export, erasure, and who may ask for them."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Gate, completion, event, say, spoken, stream
from tests.proxy.e2e.served import CHAT, Proxy, Talk, answer_of, request, user
from tests.proxy.e2e.test_compress import FILL, over, summarising, until

METRICS = [
    "transom_requests_total",
    "transom_request_duration_seconds",
    "transom_overhead_seconds",
    "transom_upstream_duration_seconds",
    "transom_time_to_first_token_seconds",
    "transom_requests_in_flight",
    "transom_prompt_tokens_total",
    "transom_upstream_tokens_total",
    "transom_prefix_stable_tokens_total",
    "transom_window_passes_total",
    "transom_window_over_budget_total",
    "transom_context_length_retries_total",
    "transom_upstream_truncation_suspected_total",
    "transom_items_removed_total",
    "transom_summaries_total",
    "transom_summary_duration_seconds",
    "transom_summary_tokens_total",
    "transom_session_source_total",
    "transom_history_match_total",
    "transom_tool_limit_total",
    "transom_token_estimate_error_ratio",
    "transom_storage_duration_seconds",
    "transom_storage_errors_total",
    "transom_sessions",
    "transom_database_bytes",
    "transom_config_reloads_total",
]


def test_health(proxy: Proxy) -> None:
    assert proxy.get("/healthz").status == 200
    ready = proxy.get("/readyz")
    assert (ready.status, ready.json["status"]) == (200, "ok")


def test_all_metrics_have_their_names(proxy: Proxy) -> None:
    text = proxy.get("/metrics").body.decode()
    families = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
    missing = {name for name in METRICS if name.removesuffix("_total") not in families}
    assert missing == set()


def test_metrics_count_and_name_no_session(proxy: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", stream([*spoken("Hi."), DONE]))
    before = proxy.metric('transom_requests_total{endpoint="chat",model="plain",status="200",tenant="acme"}')
    for i in range(3):
        proxy.post({"model": "plain", "stream": True, "messages": [user("CANARY")]}, x_session_id=f"metric-session-{i}")
    assert (
        proxy.metric('transom_requests_total{endpoint="chat",model="plain",status="200",tenant="acme"}') == before + 3
    )
    text = proxy.get("/metrics").body
    assert b"CANARY" not in text
    assert b"metric-session" not in text
    assert proxy.metric("transom_requests_in_flight") == 0


def test_the_series_stay_the_same_for_any_number_of_sessions(proxy: Proxy, upstream: FakeUpstream) -> None:
    def series() -> int:
        return len(proxy.get("/metrics").body.splitlines())

    Talk(proxy, "plain", "first").say("Hello.")
    before = series()
    for i in range(20):
        Talk(proxy, "plain", f"series-{i}").say("Hello.")
    assert series() == before


# ---------------------------------------------------------------------- who may ask
LOCAL: list[tuple[dict[str, str], int]] = [
    ({}, 200),
    ({"host": "localhost:1"}, 200),
    ({"host": "evil.example"}, 401),
    ({"x-forwarded-for": "127.0.0.1"}, 401),
    ({"forwarded": "for=127.0.0.1"}, 401),
    ({"x-real-ip": "127.0.0.1"}, 401),
    ({"via": "1.1 x"}, 401),
    ({"origin": "http://evil.example"}, 401),
    ({"origin": "null"}, 401),
]


@pytest.mark.parametrize(("headers", "status"), LOCAL)
def test_without_a_key_only_this_machine_may_ask(proxy: Proxy, headers: dict[str, str], status: int) -> None:
    assert request(proxy.port, "/admin/sessions", headers=headers).status == status


def test_metrics_on_the_shared_port_are_for_the_same_people(proxy: Proxy) -> None:
    answers = [request(proxy.port, "/metrics", headers=headers).status for headers, _ in LOCAL]
    assert answers == [status for _, status in LOCAL]


def test_with_a_key_only_who_has_it_may_ask(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(admin={"key": "the-admin-key"})
    Talk(proxy, "plain", "s").say("Hello.")
    session = proxy.session_id("s").hex()
    for method, path in [
        ("GET", "/admin/sessions"),
        ("GET", f"/admin/sessions/{session}"),
        ("GET", f"/admin/sessions/{session}/export"),
        ("GET", "/admin/requests/chatcmpl-1"),
        ("DELETE", "/admin/users/u?tenant=acme"),
        ("DELETE", f"/admin/sessions/{session}"),
    ]:
        for headers in ({}, {"authorization": "Bearer key-of-acme"}, {"authorization": "the-admin-key"}):
            assert request(proxy.port, path, headers=headers, method=method).error[:2] == (401, "invalid_api_key")
        allowed = {"authorization": "Bearer the-admin-key", "x-forwarded-for": "10.0.0.1"}
        assert request(proxy.port, path, headers=allowed, method=method).status == 200, path
    assert request(proxy.port, CHAT, {"model": "plain", "messages": [user("x")]}, allowed).status == 401


def test_a_port_of_its_own(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(server={"admin_port": 1})  # any number: the test's server takes a free one
    for path in ("/admin/sessions", "/metrics", "/healthz", "/readyz"):
        assert request(proxy.admin_port, path).status == 200
    assert request(proxy.admin_port, "/metrics", headers={"host": "proxy.internal"}).status == 200
    assert request(proxy.admin_port, "/admin/sessions", headers={"host": "proxy.internal"}).status == 401
    assert proxy.get("/readyz").status == 200
    assert proxy.get("/admin/sessions").status in (403, 404)
    assert proxy.get("/metrics").status in (403, 404)
    assert request(proxy.admin_port, CHAT, {"model": "plain", "messages": [user("x")]}).status in (403, 404)


# ---------------------------------------------------------------------- looking and erasing
@pytest.fixture
def filled(serve: Serve, upstream: FakeUpstream) -> Proxy:
    proxy = serve()
    for tenant in ("acme", "beta"):
        for i in range(3):
            talk = Talk(proxy, "plain", f"{tenant}-{i}", tenant=tenant)
            talk.more = {"user": f"user-{i}"}
            talk.say(f"CANARY {tenant} {i}.")
            talk.say("And more.")
    return proxy


def test_sessions_are_listed_newest_first_in_pages(filled: Proxy) -> None:
    def ids(query: str) -> list[str]:
        return [s["id"] for s in filled.get(f"/admin/sessions{query}").json["sessions"]]

    everything = ids("")
    assert len(everything) == 6
    assert everything[0] == filled.session_id("beta-2", "beta").hex()
    assert ids("?tenant=acme") == everything[3:]
    assert ids("?limit=2") == everything[:2]
    first = filled.get("/admin/sessions?limit=4").json
    assert ids(f"?limit=4&after={first['after']}") == everything[4:]
    assert ids(f"?after={everything[2]}") == everything[3:]
    entry = filled.get("/admin/sessions?limit=1").json["sessions"][0]
    assert {"id", "tenant", "created", "last_used", "messages"} <= entry.keys()
    assert entry["messages"] == 4


def test_a_session_is_found_by_the_name_its_client_gave_it(filled: Proxy, upstream: FakeUpstream) -> None:
    def found(query: str) -> list[str]:
        return [s["id"] for s in filled.get(f"/admin/sessions?{query}").json["sessions"]]

    filled.post({"model": "plain", "messages": [user("Hi.")], "metadata": {"session_id": "a b"}})
    assert found("tenant=acme&key=acme-1") == [filled.session_id("acme-1").hex()]
    assert found("tenant=acme&key=a%20b") == [filled.session_id("a b").hex()]
    assert found("tenant=beta&key=acme-1") == found("tenant=acme&key=acme") == found("key=acme-1") == []


def test_without_a_tenant_the_name_is_one_of_the_default_tenants(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(tenants={"default": {"policy": "plain"}})
    Talk(proxy, "plain", "mine").say("Hello.")
    (entry,) = proxy.get("/admin/sessions?key=mine").json["sessions"]
    assert entry["id"] == proxy.session_id("mine", "default").hex()
    assert proxy.get("/admin/sessions?tenant=default&key=yours").json["sessions"] == []


SUPERSCRIPT = pytest.param("limit=%C2%B2")


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "limit=99999", "after=nowhere", SUPERSCRIPT])
def test_bad_queries(filled: Proxy, query: str) -> None:
    assert filled.get(f"/admin/sessions?{query}").error[:2] == (400, "invalid_request_error")


def test_export(filled: Proxy) -> None:
    got = filled.get(f"/admin/sessions/{filled.session_id('acme-1').hex()}/export")
    lines = [json.loads(line) for line in got.body.splitlines()]
    messages = [line for line in lines if line["type"] == "message"]
    assert [m["message"]["role"] for m in messages] == ["user", "assistant"] * 2
    assert all({"id", "parent", "message", "complete"} <= m.keys() for m in messages)
    assert filled.sql("SELECT * FROM audit")


def test_one_session_without_its_texts(filled: Proxy) -> None:
    got = filled.get(f"/admin/sessions/{filled.session_id('acme-1').hex()}")
    assert b"CANARY" not in got.body
    assert got.json["tenant"] == "acme"


def test_requests_are_found_by_both_their_ids(filled: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("plain", say("Hello.", id="chatcmpl-special"))
    filled.post({"model": "plain", "messages": [user("Hi.")]}, x_request_id="my-request", x_session_id="ids")
    for name in ("my-request", "chatcmpl-special"):
        (found,) = filled.get(f"/admin/requests/{name}").json["requests"]
        assert found["session"] == filled.session_id("ids").hex()
    assert filled.get("/admin/requests/nowhere").error[:2] == (404, "session_not_found")


def test_request_ids_may_hold_a_slash(filled: Proxy, upstream: FakeUpstream) -> None:
    filled.post({"model": "plain", "messages": [user("Hi.")]}, x_request_id="trace/7")
    assert filled.get("/admin/requests/trace%2F7").status == 200


def test_one_request_id_used_twice_belongs_to_both(filled: Proxy, upstream: FakeUpstream) -> None:
    for tenant in ("acme", "beta"):
        filled.post(
            {"model": "plain", "messages": [user(tenant)]}, tenant=tenant, x_request_id="same", x_session_id="x"
        )
    found = filled.get("/admin/requests/same").json["requests"]
    assert {r["session"] for r in found} == {filled.session_id("x", t).hex() for t in ("acme", "beta")}


def test_erasing_a_session(filled: Proxy, upstream: FakeUpstream) -> None:
    session = filled.session_id("acme-1")
    path = f"/admin/sessions/{session.hex()}"
    assert filled.get(path, method="DELETE").json == {"deleted": True}
    assert filled.get(path).error[:2] == (404, "session_not_found")
    assert filled.get(path, method="DELETE").error[:2] == (404, "session_not_found")
    for file in filled.database.parent.iterdir():
        assert b"CANARY acme 1" not in file.read_bytes(), file.name
    assert any(b"CANARY acme 2" in file.read_bytes() for file in filled.database.parent.iterdir())
    talk = Talk(filled, "plain", "acme-1")
    got = talk.say("A new beginning.")
    assert "x-transom-storage" not in got.headers
    assert len(filled.rows("acme-1").messages) == 2


def test_erasing_a_session_that_is_sent_again(filled: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(filled, "fill", "erased")
    talk.until("compressed")
    filled.get(f"/admin/sessions/{filled.session_id('erased').hex()}", method="DELETE")
    got = talk.say("Go on.")
    assert "x-transom-storage" not in got.headers
    rows = filled.rows("erased")
    assert len(rows.messages) == len(talk.messages)
    assert len(rows.summaries) == 1  # made anew: the old one is erased
    assert len(upstream.summary_calls()) == 2


TABLES = ("sessions", "messages", "requests", "steps", "summaries", "baselines", "links", "preambles")


def test_erasing_reaches_what_is_under_way(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"hasty": FILL | {"summary_wait": 0.1}})
    hold, held = Gate(), Gate()
    upstream.on("hasty", summarising(lambda _: Answer([completion("CANARY.")], before=hold)))
    talk = Talk(proxy, "hasty", "under-way")
    talk.messages = over()
    assert talk.send().window == ["cut"]
    upstream.on("hasty", Answer([completion("CANARY.")], before=held))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(proxy.post, {"model": "hasty", "messages": [user("CANARY")]}, x_session_id="waits")
        until(lambda: proxy.rows("waits").messages)
        for name in ("under-way", "waits"):
            erased = proxy.get(f"/admin/sessions/{proxy.session_id(name).hex()}", method="DELETE")
            assert erased.json == {"deleted": True}
        hold.open()
        held.open()
        assert waiting.result().status == 200
    until(lambda: proxy.metric("transom_summaries_total") >= 1)
    assert proxy.metric("transom_storage_errors_total") == 0
    proxy.close()
    assert [proxy.sql(f"SELECT * FROM {table}") for table in TABLES] == [[]] * len(TABLES)
    assert not any(b"CANARY" in file.read_bytes() for file in proxy.database.parent.iterdir())


def test_a_server_that_ends_lets_requests_finish_and_streams_know(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(server={"drain_s": 2})
    hold, never = Gate(), Gate()
    upstream.on("plain", Answer([completion("Finished.")], before=hold))
    upstream.on("fill", stream([event({"content": "Half"}), never]))
    streamed = {"model": "fill", "stream": True, "messages": [user("x")]}
    with ThreadPoolExecutor(2) as pool, proxy.asking(streamed, x_session_id="half") as begun:
        first = begun.readline()
        whole = pool.submit(proxy.post, {"model": "plain", "messages": [user("x")]})
        until(lambda: len(upstream.received) == 2)
        ending = pool.submit(proxy.close)
        hold.open()
        assert whole.result().message["content"] == "Finished."
        half = answer_of(begun, first)
        ending.result()
    assert DONE not in half.body
    assert json.loads(half.events[-1][6:])["error"]["code"] == "shutting_down"
    assert [r["complete"] for r in proxy.rows("half").requests] == [0]


def test_erasing_a_user(filled: Proxy, upstream: FakeUpstream) -> None:
    assert filled.get("/admin/users/user-1", method="DELETE").error == (400, "invalid_request_error", "tenant")
    assert filled.get("/admin/users/user-1?tenant=acme", method="DELETE").json == {"deleted": 1}
    assert filled.get("/admin/users/nobody?tenant=acme", method="DELETE").json == {"deleted": 0}
    assert filled.get(f"/admin/sessions/{filled.session_id('acme-1').hex()}").status == 404
    assert filled.get(f"/admin/sessions/{filled.session_id('beta-1', 'beta').hex()}").status == 200


def test_retention_spares_what_is_in_use(serve: Serve, upstream: FakeUpstream) -> None:
    first = serve()
    for name in ("old", "used"):
        Talk(first, "plain", name).say("Hello.")
    first.close()
    with closing(sqlite3.connect(first.database)) as connection, connection:
        old = first.session_id("old")
        connection.execute("UPDATE sessions SET used_at = used_at - 86400 * 40 WHERE id = ?", (old.hex(),))
    second = serve(storage={"retention_days": 30})
    until(lambda: len(second.sql("SELECT * FROM sessions")) == 1)
    assert [r["id"] for r in second.sql("SELECT id FROM sessions")] == [second.session_id("used").hex()]


def test_logs_hold_no_text_and_no_key(proxy: Proxy, upstream: FakeUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    proxy.post({"model": "plain", "messages": [user("CANARY")]}, x_session_id="logged-session")
    proxy.post({"model": "plain", "messages": [user("CANARY")]}, tenant=None, authorization="Bearer CANARY-key")
    out = "".join(capsys.readouterr())
    assert "request" in out
    assert "CANARY" not in out
    assert "logged-session" not in out
