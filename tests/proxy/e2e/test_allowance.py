"""A tenant whose summaries have cost what they may in a day: its requests are cut without them."""

from hashlib import sha256
from typing import Any

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream, Received, ordinary, say
from tests.proxy.e2e.served import Proxy, Talk
from tests.proxy.e2e.test_compress import FILL, over

USAGE = {"prompt_tokens": 9000, "completion_tokens": 100, "total_tokens": 9100}


def costly(received: Received) -> Answer:
    """Write summaries that cost 9,100 tokens."""
    return say("They talked.", usage=USAGE) if received.is_summary else ordinary(received)


def limited(name: str, most: int | None) -> dict[str, Any]:
    """Return a tenant's configuration."""
    key = "sha256:" + sha256(f"key-of-{name}".encode()).hexdigest()
    return {"keys": [key], "policy": "fill", "limits": {"summary_tokens_per_day": most}}


def count(proxy: Proxy, tenant: str, outcome: str) -> float:
    labels = f'model="fill",outcome="{outcome}",policy="fill",tenant="{tenant}"'
    return proxy.metric(f"transom_summaries_total{{{labels}}}")


def test_a_tenant_beyond_its_allowance_is_served_without_summaries(serve: Serve, upstream: FakeUpstream) -> None:
    upstream.on("fill", costly)
    proxy = serve({"fill": FILL}, tenants={"acme": limited("acme", 9000), "beta": limited("beta", None)})
    windows = []
    for number in range(3):
        talk = Talk(proxy, "fill", f"spent-{number}")
        talk.messages = over()
        got = talk.send()
        assert got.status == 200
        windows.append(got.window)
    assert windows == [["compressed"], ["cut"], ["cut"]]
    assert len(upstream.summary_calls()) == 1
    assert (count(proxy, "acme", "created"), count(proxy, "acme", "budget")) == (1, 2)
    talk = Talk(proxy, "fill", "other", tenant="beta")
    talk.messages = over()
    assert talk.send().window == ["compressed"]


def test_a_call_that_would_cost_too_much_is_not_made(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"fill": FILL}, tenants={"acme": limited("acme", 300)})
    talk = Talk(proxy, "fill", "dear")
    talk.messages = over()
    for _ in range(4):
        assert talk.say("And now?").window == ["cut"]
    assert upstream.summary_calls() == []
    assert (count(proxy, "acme", "budget"), count(proxy, "acme", "breaker_open")) == (4, 0)
