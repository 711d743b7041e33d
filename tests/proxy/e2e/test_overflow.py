"""A model that finds a request too long: it is made smaller and sent again, and the model's window is remembered."""

from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Received, ordinary, spoken
from tests.proxy.e2e.served import Proxy, Talk, user
from tests.proxy.e2e.test_compress import over

TOO_LONG = Answer(
    [
        b'{"error": {"message": "This model\'s maximum context length is 1500 tokens. However, your messages resulted '
        b'in 2600 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}'
    ],
    400,
)
SMALL = {"preset": "chat", "reserve_tokens": 100, "compact_at": None}


def narrow(received: Received) -> Answer:
    """Refuse what is longer than about 1,500 tokens."""
    return TOO_LONG if len(received.body) > 7000 else ordinary(received)


@pytest.fixture
def learning(serve: Serve) -> Proxy:
    return serve({"small": SMALL})


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_was_too_long_is_made_smaller(learning: Proxy, upstream: FakeUpstream, streamed: bool) -> None:
    upstream.on("small", narrow)
    talk = Talk(learning, "small", f"overflow-{streamed}")
    talk.messages, talk.more = over(14), {"stream": streamed}
    got = talk.send(idempotency_key="once")
    assert got.status == 200
    assert got.window == ["cut"]
    first, second = upstream.to("small")
    assert len(second.body) < len(first.body)
    assert second.texts[-1] == "And now?"
    assert [r.headers.get("idempotency-key") for r in (first, second)] == ["once", None]
    if streamed:
        assert got.body.endswith(spoken("x")[-1] + DONE)
    upstream.received.clear()
    talk.messages = [*talk.messages, {"role": "assistant", "content": "Fine."}, user("Then?")]
    assert talk.send().status == 200
    assert len(upstream.to("small")) == 1  # the window is known now


def test_the_smaller_cut_is_stored(learning: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("small", narrow)
    talk = Talk(learning, "small", "stored-cut")
    talk.messages = over(14)
    assert "x-transom-storage" not in talk.send().headers
    assert len(learning.rows("stored-cut").baselines) == 1


def test_what_stays_too_long_is_refused_in_the_models_words(learning: Proxy, upstream: FakeUpstream) -> None:
    upstream.on("small", TOO_LONG)
    got = learning.post({"model": "small", "messages": over(14)})
    assert (got.status, got.body) == (400, TOO_LONG.parts[0])
    assert len(upstream.to("small")) == 3
    sizes = [len(r.body) for r in upstream.to("small")]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("policy", [{"strategy": "none"}, SMALL | {"enforce": "audit"}, SMALL | {"on_unfit": "error"}])
def test_where_nothing_may_be_changed_nothing_is(serve: Serve, upstream: FakeUpstream, policy: dict[str, Any]) -> None:
    proxy = serve({"small": policy})
    upstream.on("small", narrow)
    got = proxy.post({"model": "small", "messages": over(14)})
    assert (got.status, got.body) == (400, TOO_LONG.parts[0])
    assert len(upstream.to("small")) == 1


def test_a_window_as_small_as_the_reserve_still_bounds_what_is_sent(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"tiny": {"preset": "chat"}}, info={"tiny": {"max_input_tokens": 4096}})
    got = proxy.post({"model": "tiny", "messages": over(40)})
    assert got.tokens["sent"] < 4096
