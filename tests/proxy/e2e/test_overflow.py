"""A model that finds a request too long: it is made smaller and sent again, and the model's window is remembered."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Received, ordinary, say, spoken
from tests.proxy.e2e.served import Json, Proxy, Talk, assistant, long_text, user
from tests.proxy.e2e.test_compress import over
from transom.proxy.tokens import Tokenizer

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


# ---------------------------------------------------------------------- a model that counts in its own way
one_tokenizer = cache(Tokenizer)


class Costly:
    """A server that needs 2.5 tokens for one of ours, refuses what its window does not hold, and reports usage."""

    def __init__(self, window: int, count: Callable[[str], int]) -> None:
        self.window, self._count = window, count
        self.refused = 0
        self.read: list[int] = []

    def __call__(self, received: Received) -> Answer:
        size = int(2.5 * self._count(received.body.decode()))
        if size <= self.window:
            self.read.append(size)
            usage = {"prompt_tokens": size, "completion_tokens": 3, "total_tokens": size + 3}
            return say("Fine.", usage=usage)
        self.refused += 1
        message = (
            f"This model's maximum context length is {self.window} tokens. However, your request has {size} input "
            "tokens. Please reduce the length of the input messages."
        )
        return Answer([json.dumps({"error": {"message": message, "code": 400}}).encode()], 400)


TOOLS = [
    {"type": "function", "function": {"name": f"tool_{n}", "description": long_text(f"Tool {n}", 300)}}
    for n in range(10)
]


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["texts", "tools of 3,000 tokens"])
@pytest.mark.parametrize("known", [True, False], ids=["window configured", "window unknown"])
def test_a_costly_tokenizer_is_met_once_and_then_known(
    serve: Serve, upstream: FakeUpstream, tools: list[Json] | None, known: bool
) -> None:
    model = Costly(20_000, one_tokenizer().count)
    proxy = serve({"small": SMALL}, info={"small": {"max_input_tokens": 20_000}} if known else None)
    upstream.on("small", model)
    talk = Talk(proxy, "small", "costly")
    talk.messages = over(70)
    if tools:
        talk.more = {"tools": tools}
    for turn in range(12):
        assert talk.say(long_text(f"More {turn}", 300)).status == 200
    assert model.refused <= 2
    assert max(model.read) <= 20_000


def test_a_page_of_images_that_costs_more_than_we_count_is_made_smaller(
    learning: Proxy, upstream: FakeUpstream
) -> None:
    """We count an image of unknown size at 765 tokens; this model takes 4,000 for it."""

    def by_images(received: Received) -> Answer:
        size = 4_000 * received.body.count(b"image_url_of") + 100
        if size <= 10_000:
            return ordinary(received)
        message = f"prompt is too long: {size} tokens > 10000 maximum"
        return Answer([json.dumps({"type": "error", "error": {"message": message}}).encode()], 400)

    upstream.on("small", by_images)
    talk = Talk(learning, "small", "images")
    for number in range(6):
        image = {"type": "image_url", "image_url": {"url": f"https://example.com/image_url_of_{number}.png"}}
        talk.messages += [{"role": "user", "content": [image]}, assistant("Seen.")]
    talk.messages.append(user("Which was best?"))
    assert talk.send().status == 200
    assert len(upstream.to("small")) == 2


def test_absurd_amounts_of_answer_cost_no_request(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve({"tiny": {"preset": "chat"}}, info={"tiny": {"max_input_tokens": 4096}})
    for amount in (b"4096", b"1" + b"0" * 30, b"1" + b"0" * 400, b"1e308"):
        messages = json.dumps(over(40)).encode()
        got = proxy.post(b'{"model": "tiny", "max_tokens": %b, "messages": %b}' % (amount, messages))
        assert got.status == 200
        assert 0 < got.tokens["sent"] <= got.tokens["limit"] == 2048
