"""Which session a request belongs to: by the names clients send, and without one by how its history begins."""

from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream
from tests.proxy.e2e.served import CHAT, Proxy, Talk, assistant, request, user
from transom.proxy.config.schema import SESSION_HEADERS
from transom.storage import identity

HELLO = {"model": "plain", "messages": [user("Hello.")]}


def count(proxy: Proxy, name: str, tenant: str = "acme") -> int:
    return len(proxy.rows(proxy.session_id(name, tenant)).requests)


# ---------------------------------------------------------------------- with a key
def test_the_headers_have_an_order(proxy: Proxy, upstream: FakeUpstream) -> None:
    for place, name in enumerate(SESSION_HEADERS):
        sent = {other.lower().replace("-", "_"): f"order-{other.lower()}" for other in SESSION_HEADERS[place:]}
        assert proxy.post(HELLO | {"metadata": {"session_id": "order-body"}}, **sent).status == 200
        assert count(proxy, f"order-{name.lower()}") == 1
    assert count(proxy, "order-body") == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"metadata": {"session_id": "body-1"}}, "body-1"),
        ({"litellm_session_id": "body-2"}, "body-2"),
        ({"metadata": {"session_id": "body-3"}, "litellm_session_id": "body-x"}, "body-3"),
        ({"metadata": {"session_id": 7}, "litellm_session_id": "body-4"}, "body-4"),
        ({"metadata": {"session_id": ""}, "litellm_session_id": "body-5"}, "body-5"),
        ({"metadata": {"session_id": "ümlaut " + "x" * 400}}, "ümlaut " + "x" * 400),
    ],
)
def test_the_bodys_fields(proxy: Proxy, upstream: FakeUpstream, fields: dict[str, Any], named: str) -> None:
    assert proxy.post(HELLO | fields).status == 200
    assert count(proxy, named) == 1


@pytest.mark.parametrize("fields", [{"user": "u"}, {"prompt_cache_key": "k"}, {"metadata": {"session_id": 7}}])
def test_what_names_no_session(proxy: Proxy, upstream: FakeUpstream, fields: dict[str, Any]) -> None:
    got = proxy.post(HELLO | fields)
    assert got.status == 200
    assert "x-session-id" not in got.headers
    assert count(proxy, "u") == count(proxy, "k") == count(proxy, "7") == 0


@pytest.mark.parametrize(
    "value", ["", "x" * 257, "with space", "tab\tinside", "\xe9"], ids=["empty", "long", "space", "tab", "é"]
)
def test_bad_session_ids(proxy: Proxy, upstream: FakeUpstream, value: str) -> None:
    got = proxy.post(HELLO, x_session_id=value)
    assert got.error == (400, "invalid_session_id", "x-session-id")
    assert ("is empty" in got.json["error"]["message"]) == (value == "")
    assert upstream.received == []


@pytest.mark.parametrize("value", ["../../etc/passwd", "%00", "x" * 256, "'; DROP TABLE sessions;--".replace(" ", "_")])
def test_strange_but_valid_session_ids(proxy: Proxy, upstream: FakeUpstream, value: str) -> None:
    got = proxy.post(HELLO, x_session_id=value)
    assert got.headers["x-session-id"] == value
    assert count(proxy, value) == 1


def test_session_names_are_stored_hashed(proxy: Proxy, upstream: FakeUpstream) -> None:
    proxy.post(HELLO | {"user": "a-person-by-name"}, x_session_id="a-session-by-name")
    for table in ("sessions", "requests"):
        for row in proxy.sql(f"SELECT * FROM {table}"):
            assert not any("by-name" in str(value) for value in tuple(row))


def test_two_tenants_with_the_same_id(proxy: Proxy, upstream: FakeUpstream) -> None:
    for tenant in ("acme", "beta"):
        talk = Talk(proxy, "plain", "shared-name", tenant=tenant)
        talk.say(f"I am {tenant}.")
    rows = {t: proxy.rows(proxy.session_id("shared-name", t)) for t in ("acme", "beta")}
    assert [len(r.messages) for r in rows.values()] == [2, 2]
    assert b"beta" not in b"".join(row["payload"] for row in rows["acme"].messages)


def test_two_bearers_with_the_same_id(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve()
    proxy.reconfigure(tenants={"default": {"policy": "plain", "upstream_key": "client"}})
    for bearer in ("mine", "yours"):
        got = proxy.post(HELLO, tenant=None, authorization=f"Bearer {bearer}", x_session_id="s")
        assert got.status == 200
        assert len(proxy.rows(proxy.session_id("s", "default", bearer)).messages) == 2
    assert [r.headers["authorization"] for r in upstream.received] == ["Bearer mine", "Bearer yours"]


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/completions"])
def test_the_configured_key_is_not_spent_on_who_is_to_bring_one(
    serve: Serve, upstream: FakeUpstream, path: str
) -> None:
    proxy = serve()
    proxy.reconfigure(tenants={"default": {"policy": "plain", "upstream_key": "client"}})
    got = request(proxy.port, path, HELLO | {"input": "x", "prompt": "x"})
    assert got.error == (401, "invalid_api_key", None)
    assert "own key" in got.json["error"]["message"]
    assert not upstream.received


@pytest.mark.parametrize("wish", ["no", "off", "full", ""])
def test_a_wish_for_storage_that_there_is_not_is_refused(proxy: Proxy, upstream: FakeUpstream, wish: str) -> None:
    got = proxy.post(HELLO, x_session_id="wish", x_transom_store=wish)
    assert got.error == (400, "invalid_request_error", "X-Transom-Store")
    assert not upstream.received


@pytest.mark.parametrize("wish", ["none", "None", "NONE"])
def test_nothing_is_stored_if_so_wished(proxy: Proxy, upstream: FakeUpstream, wish: str) -> None:
    assert proxy.post(HELLO, x_session_id=f"unstored-{wish}", x_transom_store=wish).status == 200
    assert not proxy.rows(proxy.session_id(f"unstored-{wish}", "acme")).messages


# ---------------------------------------------------------------------- without a key
def sessions(proxy: Proxy) -> int:
    return int(proxy.sql("SELECT count(*) FROM sessions")[0][0])


@pytest.fixture
def fresh(serve: Serve) -> Proxy:
    return serve()


def test_a_conversation_grows_one_session(fresh: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(fresh, "plain")
    shown = {talk.say(f"Sentence {turn}.").headers.get("x-session-id") for turn in range(5)}
    assert sessions(fresh) == 1
    assert len(shown) == 2  # none at first, then always the same
    assert len(fresh.sql("SELECT * FROM messages")) == 10


def test_it_does_so_across_a_restart(serve: Serve, upstream: FakeUpstream) -> None:
    first = serve()
    talk = Talk(first, "plain")
    talk.say("One.")
    talk.say("Two.")
    first.close()
    second = serve()
    talk._proxy = second
    assert "x-session-id" in talk.say("Three.").headers
    assert sessions(second) == 1
    assert len(second.sql("SELECT * FROM messages")) == 6


def test_an_edit_is_a_branch_of_the_session(fresh: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(fresh, "plain")
    for turn in range(3):
        talk.say(f"Sentence {turn}.")
    branches = fresh.metric('transom_history_match_total{kind="branch"')
    talk.messages = [*talk.messages[:2], user("Something else.")]
    got = talk.send()
    assert "x-session-id" in got.headers
    assert sessions(fresh) == 1
    assert fresh.metric('transom_history_match_total{kind="branch"') == branches + 1


def test_the_first_message_again_is_a_new_session(fresh: Proxy, upstream: FakeUpstream) -> None:
    for _ in range(2):
        Talk(fresh, "plain").say("Hello.")
    assert sessions(fresh) == 2


def test_two_users_are_apart(fresh: Proxy, upstream: FakeUpstream) -> None:
    messages = [user("Hello."), assistant("Answer 1."), user("Go on.")]
    for name in ("anna", "ben", "anna"):
        assert fresh.post({"model": "plain", "messages": messages, "user": name}).status == 200
    assert sessions(fresh) == 2
    assert fresh.post({"model": "plain", "messages": messages}, x_transom_user="anna").headers.get("x-session-id")


def test_two_tenants_are_apart(fresh: Proxy, upstream: FakeUpstream) -> None:
    messages = [user("Hello."), assistant("Answer 1."), user("Go on.")]
    for tenant in ("acme", "beta"):
        got = fresh.post({"model": "plain", "messages": messages}, tenant=tenant)
        assert "x-session-id" not in got.headers
    assert sessions(fresh) == 2


def test_of_equal_pasts_the_newest_session_goes_on(fresh: Proxy, upstream: FakeUpstream) -> None:
    for _ in range(2):
        Talk(fresh, "plain").say("Hello.")
    talk = Talk(fresh, "plain")
    talk.messages = [user("Hello."), assistant("Answer 1.")]
    shown = talk.say("Go on.").headers["x-session-id"]
    newest = fresh.sql("SELECT id FROM sessions ORDER BY seq DESC LIMIT 1")[0]["id"]
    assert shown == newest


def test_a_changing_preamble_changes_nothing(fresh: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(fresh, "plain")
    for turn in range(3):
        talk.messages = [{"role": "system", "content": f"It is {turn} o'clock."}, *talk.messages[1 if turn else 0 :]]
        talk.say(f"Sentence {turn}.")
    assert sessions(fresh) == 1
    assert len(fresh.sql("SELECT * FROM messages")) == 6


def test_the_same_again_without_a_key_adds_nothing(fresh: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(fresh, "plain")
    talk.say("One.")
    talk.messages.append(user("Two."))
    first, second = talk.send(), talk.send()
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    assert "replayed" in second.window
    assert len(fresh.sql("SELECT * FROM messages")) == 4


def test_memory_writes_nothing(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(session={"missing": "memory"})
    talk = Talk(proxy, "fill")
    talk.until("compressed")
    talk.say("Go on.")
    assert len(upstream.summary_calls()) == 1
    assert len(upstream.to("fill")[-1].summaries) == 1
    for table in ("sessions", "messages", "requests", "steps", "summaries", "links", "preambles"):
        assert proxy.sql(f"SELECT * FROM {table}") == []
    assert Talk(proxy, "plain", "named").say("Hello.").status == 200
    assert sessions(proxy) == 1


def test_reject(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(session={"missing": "reject"})
    assert proxy.post(HELLO).error[:2] == (400, "session_required")
    assert upstream.received == []
    assert proxy.post(HELLO, x_session_id="s").status == 200


# ---------------------------------------------------------------------- what is not written
@pytest.mark.parametrize("session", [None, "none"])
def test_store_none_writes_nothing(fresh: Proxy, upstream: FakeUpstream, session: str | None) -> None:
    talk = Talk(fresh, "fill", session)
    for turn in range(12):
        talk.say(f"Turn {turn}: " + "water and stone and " * 40, x_transom_store="none")
    assert upstream.summary_calls()
    assert len(upstream.to("fill")[-1].summaries) == 1
    for table in ("sessions", "messages", "requests", "steps", "summaries", "links", "preambles", "baselines"):
        assert fresh.sql(f"SELECT * FROM {table}") == [], table


def test_writing_may_begin_in_the_middle(fresh: Proxy, upstream: FakeUpstream) -> None:
    talk = Talk(fresh, "fill", "late")
    for turn in range(12):
        talk.say(f"Turn {turn}: " + "water and stone and " * 40, x_transom_store="none")
    assert upstream.summary_calls()
    got = talk.say("From now on, write.")
    assert "x-transom-storage" not in got.headers
    rows = fresh.rows("late")
    assert len(rows.messages) == 26


def test_what_is_written_from_the_middle_on_survives_a_restart(serve: Serve, upstream: FakeUpstream) -> None:
    upstream.number_summaries("fill")
    first = serve()
    talk = Talk(first, "fill", "late")
    for turn in range(12):
        talk.say(f"Turn {turn}: " + "water and stone and " * 40, x_transom_store="none")
    talk.messages.append(user("From now on, write."))
    talk.send()
    first.close()
    talk._proxy = serve()
    talk.send()
    before, after = upstream.to("fill")[-2:]
    assert after.body == before.body


def test_a_tenant_that_stores_no_text(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve()
    tenants = proxy._mapping["tenants"]
    tenants["acme"]["store"] = "summaries"
    proxy.reconfigure(tenants=tenants)
    talk = Talk(proxy, "fill", "bare")
    talk.messages.append({"role": "system", "content": "Be kind, CANARY."})
    talk.until("compressed")
    rows = proxy.rows("bare")
    assert len(rows.messages) == len(talk.messages) - 1
    assert len(rows.summaries) == 1
    assert all(row["payload"] is None for row in [*rows.messages, *rows.preambles])
    assert b"CANARY" not in proxy.database.read_bytes()


def test_users_are_stored_by_their_hash(fresh: Proxy, upstream: FakeUpstream) -> None:
    fresh.post(HELLO | {"safety_identifier": "zoe", "user": "nobody"}, x_session_id="u1")
    fresh.post(HELLO, x_session_id="u2", x_transom_user="zoe")
    hashed = identity.user_hash(fresh.secret, "acme", "zoe")
    assert [row["user_hash"] for row in fresh.sql("SELECT user_hash FROM sessions")] == [hashed.hex()] * 2
