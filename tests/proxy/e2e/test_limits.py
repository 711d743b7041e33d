"""A tenant's own limits: what one may have under way takes nothing from the others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import Abort, Answer, FakeUpstream, Gate, event, ordinary, say, stream
from tests.proxy.e2e.served import Got, Proxy, key, request, user
from tests.proxy.e2e.test_compress import until

HELLO = {"model": "plain", "messages": [user("Hello.")]}


def bounded(serve: Serve, most: int | None) -> Proxy:
    """Run a proxy whose tenant acme may have so many requests under way."""
    proxy = serve()
    bound(proxy, most)
    return proxy


def bound(proxy: Proxy, most: int | None) -> None:
    tenants = proxy._mapping["tenants"]
    proxy.reconfigure(tenants=tenants | {"acme": tenants["acme"] | {"limits": {"in_flight": most}}})


def chat(proxy: Proxy, tenant: str = "acme") -> Got:
    return proxy.post(HELLO, tenant=tenant)


def embed(proxy: Proxy, tenant: str = "acme") -> Got:
    return request(proxy.port, "/v1/embeddings", {"model": "plain", "input": "x"}, key(tenant))


@pytest.mark.parametrize("ask", [chat, embed])
def test_a_tenants_requests_under_way(serve: Serve, upstream: FakeUpstream, ask: Callable[..., Got]) -> None:
    proxy, hold = bounded(serve, 2), Gate()
    held: Any = say()
    held.before = hold
    upstream.on("plain", held)
    upstream.at("embeddings", Answer([b"{}"], before=hold))
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(chat, proxy), pool.submit(embed, proxy)]
        until(lambda: len(upstream.received) == 2)
        refused = ask(proxy)
        other = pool.submit(ask, proxy, "beta")
        until(lambda: len(upstream.received) == 3)
        hold.open()
        assert [w.result().status for w in [*waiting, other]] == [200] * 3
    assert refused.error == (429, "rate_limit_exceeded", None)
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json["error"]["type"] == "requests"
    assert len(upstream.received) == 3
    assert ask(proxy).status == 200


def test_however_a_request_ends_it_is_over(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = bounded(serve, 1)
    upstream.on("plain", stream([event({"content": "Hal"}), Abort()]), Answer([b"no"], 500), Answer([b"{}"]), ordinary)
    upstream.at("embeddings", Answer([Abort()]), Answer([b"no"], 400), Answer([b"{}"]))
    ends = [chat(proxy).status, chat(proxy).status, chat(proxy).status]
    ends += [embed(proxy).status, embed(proxy).status, embed(proxy).status]
    refused = [proxy.post(b"{"), proxy.post(HELLO | {"model": "nope"}), proxy.get("/v1/files", **key("acme"))]
    ends += [got.status for got in refused]
    assert ends == [502, 500, 502, 502, 400, 200, 400, 404, 403]
    assert chat(proxy).status == 200
    assert proxy.transom is not None
    under_way = proxy.transom._tenant_requests._under_way
    until(lambda: not any(under_way.values()))


def test_a_reload_changes_the_limit(serve: Serve, upstream: FakeUpstream) -> None:
    proxy, hold = bounded(serve, 1), Gate()
    upstream.at("embeddings", Answer([b"{}"], before=hold), Answer([b"{}"]))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(embed, proxy)
        until(lambda: upstream.received)
        assert embed(proxy).status == 429
        bound(proxy, None)
        assert embed(proxy).status == 200
        bound(proxy, 1)
        assert embed(proxy).status == 429
        hold.open()
        assert waiting.result().status == 200
    assert embed(proxy).status == 200
