"""How far a policy is enforced: by itself, by a header where the tenant may, by the thread's place in a trial."""

from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream, call
from tests.proxy.e2e.served import Json, Proxy, assistant, result, user
from tests.proxy.e2e.test_compress import FILL, over

POLICIES: dict[str, dict[str, Any]] = {
    "on": FILL,
    "audit": FILL | {"enforce": "audit"},
    "off": FILL | {"enforce": "off"},
    "control": FILL | {"percent": 0},
    "unfit": FILL | {"on_unfit": "error", "max_tokens": 100},
}


@pytest.fixture
def ruled(serve: Serve) -> Proxy:
    proxy = serve(POLICIES)
    tenants = proxy._mapping["tenants"]
    tenants["acme"]["may_override"] = ["policy", "off", "audit"]
    proxy.reconfigure(tenants=tenants)
    return proxy


@pytest.mark.parametrize(
    ("model", "headers", "label"),
    [
        ("audit", {}, "audit"),
        ("off", {}, "none"),
        ("control", {}, "control"),
        ("on", {"x_transom_window": "off"}, "none"),
        ("on", {"x_transom_window": "audit"}, "audit"),
        ("on", {"x_transom_policy": "off"}, "none"),
    ],
)
def test_where_it_is_not_enforced_nothing_is_changed(
    ruled: Proxy, upstream: FakeUpstream, model: str, headers: dict[str, str], label: str
) -> None:
    messages = over()
    got = ruled.post({"model": model, "messages": messages}, **headers)
    assert got.status == 200
    assert got.window[-1] == label or got.window[0] == label
    assert [r.messages for r in upstream.to(model)] == [messages]
    assert upstream.summary_calls() == []


def test_a_policy_of_another_name(ruled: Proxy, upstream: FakeUpstream) -> None:
    got = ruled.post({"model": "off", "messages": over()}, x_transom_policy="on")
    assert (got.headers["x-transom-policy"], got.window) == ("on", ["compressed"])
    assert ruled.post({"model": "off", "messages": over()}, x_transom_policy="nope").error[0] == 400
    assert ruled.post({"model": "off", "messages": over()}, x_transom_window="nope").error[0] == 400


def test_what_cannot_fit_is_refused_before_anything_is_spent(ruled: Proxy, upstream: FakeUpstream) -> None:
    got = ruled.post({"model": "unfit", "messages": [user("word " * 200)]})
    assert got.error == (400, "context_length_exceeded", "messages")
    sent, limit = got.tokens["sent"], got.tokens["limit"]
    assert sent > limit
    said = got.json["error"]["message"]
    assert "policy `unfit`" in said
    assert f"{sent:,} tokens where {limit:,} are allowed" in said
    assert upstream.received == []


def test_what_cannot_fit_is_forwarded_with_a_word(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"tight": FILL | {"max_tokens": 100}})
    messages = [user("word " * 200)]
    got = proxy.post({"model": "tight", "messages": messages})
    assert got.status == 200
    assert "over-budget" in got.window
    assert upstream.received[0].messages == messages


@pytest.mark.parametrize("policy", [{"preset": "agent"}, {"preset": "recall"}, {"strategy": "count", "keep_last": 2}])
def test_every_preset_and_strategy_serves(serve: Serve, upstream: FakeUpstream, policy: dict[str, Any]) -> None:
    proxy = serve({"other": policy | {"max_tokens": 1200}})
    assert proxy.post({"model": "other", "messages": over()}).status == 200


@pytest.mark.parametrize(
    ("limits", "last"),
    [({"max_tokens": 300, "max_context_items": 8}, "word " * 400), ({"max_tokens": 700, "max_context_items": 1}, "?")],
    ids=["the tokens", "the items"],
)
def test_no_summary_is_paid_for_a_request_that_is_refused_for_its_other_limit(
    serve: Serve, upstream: FakeUpstream, limits: dict[str, int], last: str
) -> None:
    proxy = serve({"unfit": FILL | limits | {"on_unfit": "error"}})
    messages = [{"role": "system", "content": "Be kind."}, *over()[:-1], user(last)]
    got = proxy.post({"model": "unfit", "messages": messages})
    assert got.error == (400, "context_length_exceeded", "messages")
    assert upstream.received == []


@pytest.mark.parametrize(
    ("policy", "messages"),
    [
        (FILL | {"on_unfit": "error", "max_tokens": 100}, [user("word " * 200)]),
        (
            {"max_tool_calls_per_turn": 1, "on_tool_limit": "error"},
            [user("Go."), assistant(None, [call("1")]), result("1")],
        ),
    ],
    ids=["unfit", "tool limit"],
)
def test_a_refused_request_is_recorded_as_any_other(
    serve: Serve, upstream: FakeUpstream, policy: dict[str, Any], messages: list[Json]
) -> None:
    proxy = serve({"strict": policy})
    for number in range(2):
        got = proxy.post({"model": "strict", "messages": messages}, x_session_id="refused")
        assert got.status == 400
        assert "x-transom-storage" not in got.headers
        rows = proxy.rows("refused")
        assert [m["role"] for m in rows.messages] == [m["role"] for m in messages]
        assert [r["status"] for r in rows.requests] == [400] * (number + 1)
    assert proxy.metric("transom_storage_errors_total") == 0
    assert proxy.get("/readyz").json == {"status": "ok"}
    assert upstream.received == []
