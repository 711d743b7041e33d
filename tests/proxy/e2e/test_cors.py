"""Pages of the configured origins may call the API from a browser; nobody else's may."""

from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream
from tests.proxy.e2e.served import CHAT, Got, Proxy, request, user

HELLO = {"model": "plain", "messages": [user("Hello.")]}
GOOD, OTHER = "https://good.example", "https://other.example"


def preflight(proxy: Proxy, origin: str = GOOD, path: str = CHAT, **more: str) -> Got:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-session-id"}
    return request(proxy.port, path, None, {"origin": origin} | asked | more, "OPTIONS")


@pytest.fixture
def open_to_good(serve: Serve) -> Proxy:
    return serve(server={"cors_origins": [GOOD]})


def test_a_preflight_needs_no_key(open_to_good: Proxy, upstream: FakeUpstream) -> None:
    for path in (CHAT, "/v1/embeddings", "/v1/models"):
        got = preflight(open_to_good, path=path)
        assert got.status == 200
        assert got.headers["access-control-allow-origin"] == GOOD
        assert "authorization" in got.headers["access-control-allow-headers"]
        assert "POST" in got.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in got.headers
    assert upstream.received == []


def test_a_page_on_the_internet_may_ask_for_this_machine(open_to_good: Proxy) -> None:
    got = preflight(open_to_good, **{"access-control-request-private-network": "true"})
    assert got.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("body", [HELLO, HELLO | {"stream": True}], ids=["json", "stream"])
def test_answers_may_be_read(open_to_good: Proxy, upstream: FakeUpstream, body: dict[str, Any]) -> None:
    got = open_to_good.post(body, origin=GOOD)
    assert got.status == 200
    assert got.headers["access-control-allow-origin"] == GOOD
    assert got.headers["access-control-expose-headers"] == "*"
    assert got.headers["vary"] == "Origin"
    assert got.headers["x-request-id"]


def test_errors_may_be_read(open_to_good: Proxy) -> None:
    refused = [
        open_to_good.post(HELLO, tenant=None, origin=GOOD),
        open_to_good.post(b"{", origin=GOOD),
        open_to_good.get("/v1/files", origin=GOOD, authorization="Bearer key-of-acme"),
    ]
    assert [got.status for got in refused] == [401, 400, 403]
    assert {got.headers["access-control-allow-origin"] for got in refused} == {GOOD}


def test_other_pages_may_not(open_to_good: Proxy) -> None:
    assert preflight(open_to_good, OTHER).status == 400
    for origin in (OTHER, "null", GOOD + ".evil.example"):
        assert "access-control-allow-origin" not in open_to_good.post(HELLO, origin=origin).headers


def test_only_the_api(open_to_good: Proxy) -> None:
    for path in ("/admin/sessions", "/metrics", "/healthz"):
        assert "access-control-allow-origin" not in open_to_good.get(path, origin=GOOD).headers
        assert "access-control-allow-origin" not in preflight(open_to_good, path=path).headers


def test_without_origins_there_is_none_of_it(proxy: Proxy) -> None:
    assert preflight(proxy).status == 401
    got = proxy.post(HELLO, origin=GOOD)
    assert got.status == 200
    assert not {"access-control-allow-origin", "vary"} & got.headers.keys()


def test_a_reload_changes_who_may(open_to_good: Proxy) -> None:
    open_to_good.reconfigure(server={"cors_origins": [OTHER]})
    assert open_to_good.post(HELLO, origin=OTHER).headers["access-control-allow-origin"] == OTHER
    assert "access-control-allow-origin" not in open_to_good.post(HELLO, origin=GOOD).headers
    open_to_good.reconfigure(server={})
    assert "vary" not in open_to_good.post(HELLO, origin=OTHER).headers


def test_any_origin(serve: Serve) -> None:
    """Whoever opens the proxy to every page still asks all of them for a key."""
    proxy = serve(server={"cors_origins": ["*"]})
    assert proxy.post(HELLO, origin=OTHER).headers["access-control-allow-origin"] == "*"
    proxy.reconfigure(tenants={"default": {"policy": "plain"}})
    assert proxy.post(HELLO, tenant=None, origin=OTHER).error[:2] == (401, "invalid_api_key")
