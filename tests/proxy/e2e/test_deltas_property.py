"""Any conversation sent as deltas goes up, and is stored, as the same conversation sent whole."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Received, call, event, say, stream
from tests.proxy.e2e.served import Got, Json, Proxy, config, long_text, result, serving, user
from tests.proxy.e2e.test_deltas import head_of
from tests.proxy.e2e.test_history import shown, stored

POLICIES: dict[str, dict[str, Any]] = {
    "off": {"strategy": "none"},
    "fill": {"strategy": "context_window", "max_tokens": 900, "keep_verbatim": "fill", "compact_at": None},
    "items": {"strategy": "context_window", "max_context_items": 9, "keep_recent_turns": 2, "compact_at": None},
    "cut": {"strategy": "truncate", "max_tokens": 900},
    "clear": {"strategy": ["clear_tool_results", "truncate"], "max_tokens": 900, "keep_tool_results": 1},
    "summarize": {"strategy": ["summarize", "truncate"], "max_tokens": 900, "keep_last": 3, "compact_at": None},
    "recall": {"strategy": ["truncate", "recall"], "max_tokens": 900, "recall_tokens": 200},
}
FIGURES = ("messages_before", "messages_sent", "tokens_before", "tokens_sent", "tokens_stable", "window", "complete")
ID = re.compile(r"\b[0-9a-f]{32}\b")


@dataclass(frozen=True)
class Turn:
    """What a client sends at once, and what happens then."""

    subject: str
    tokens: int
    calls: int  # that the model answers with
    later_system: bool
    streamed: bool
    fails_first: bool
    again: bool  # sent once more by a client that lost the answer
    forgotten: bool  # whether the proxy's memory of the sessions is gone before


turns = st.lists(
    st.builds(
        Turn,
        subject=st.sampled_from(["river", "stone", "bridge", "é 😀"]),
        tokens=st.sampled_from([3, 40, 150, 300]),
        calls=st.sampled_from([0, 0, 0, 1, 2]),
        later_system=st.sampled_from([False, False, False, True]),
        streamed=st.booleans(),
        fails_first=st.sampled_from([False, False, False, True]),
        again=st.sampled_from([False, False, False, True]),
        forgotten=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=9,
)


@pytest.fixture(scope="module")
def served(running_upstream: FakeUpstream, database_url: str) -> Iterator[Proxy]:
    """Run a proxy whose policies act early."""
    with serving(config(running_upstream.url, POLICIES, database=database_url)) as proxy:
        yield proxy


def answer(received: Received) -> Answer:
    """Answer by what the last message asks for alone, so that equal requests have equal answers."""
    if received.is_summary:
        return say("They talked about rivers.")
    last = received.messages[-1]
    text, wanted = f"On {str(last['content'])[:9]}", 0
    if last["role"] == "user" and (asked := re.match(r"(\d) calls", str(last["content"]))):
        wanted = int(asked[1])
    past = crc32(json.dumps(received.messages, sort_keys=True).encode())
    calls = [call(f"call-{past}-{place}", arguments='{"a": 1}') for place in range(wanted)]
    if not received.fields.get("stream"):
        return say(text, calls=calls)
    parts = [event({"role": "assistant", "content": text})]
    parts += [event({"tool_calls": [{"index": place, **one}]}) for place, one in enumerate(calls)]
    return stream([*parts, event({}, "tool_calls" if calls else "stop"), DONE])


def said(got: Got) -> Json:
    """Return the message of an answer, also of a stream."""
    if not got.headers["content-type"].startswith("text/event-stream"):
        return got.message
    message: Json = {}
    for block in re.findall(rb"data: (\{.*\})", got.body):
        delta = json.loads(block)["choices"][0]["delta"]
        calls = [{k: v for k, v in one.items() if k != "index"} for one in delta.pop("tool_calls", [])]
        message |= delta
        if calls:
            message["tool_calls"] = message.get("tool_calls", []) + calls
    return message


class Client:
    """Sends one conversation twice: whole, and as deltas."""

    def __init__(self, proxy: Proxy, upstream: FakeUpstream, model: str) -> None:
        self.proxy, self.upstream, self.model = proxy, upstream, model
        self.whole, self.delta = uuid4().hex, uuid4().hex
        self.messages: list[Json] = []
        self.head: str | None = None

    def say(self, new: list[Json], turn: Turn) -> Json:
        """Send new messages both ways, and compare; return the answer."""
        body = {"model": self.model, "stream": turn.streamed}
        self.messages += new
        sent = {"x_session_id": self.delta, "x_session_history": "delta", "idempotency_key": uuid4().hex}
        if self.head is not None:
            sent["x_transom_parent"] = self.head
        for attempt in range(turn.again + 1):
            if turn.forgotten and self.proxy.transom is not None:
                for name in (self.whole, self.delta):
                    self.proxy.transom._forget(self.proxy.session_id(name))
            if turn.fails_first and not attempt:
                self.upstream.on(self.model, Answer([b"{}"], status=500))
                self._both(body, new, sent)
            self.upstream.on(self.model, answer)
            ours, theirs = self._both(body, new, sent)
            assert ours.status == 200, ours.body
            assert said(ours) == said(theirs)
            assert (ours.window, ours.tokens if "x-transom-tokens" in ours.headers else None) == (
                theirs.window,
                theirs.tokens if "x-transom-tokens" in theirs.headers else None,
            )
        self.head = head_of(ours)
        self.messages.append(said(theirs))
        return self.messages[-1]

    def _both(self, body: Json, new: list[Json], sent: dict[str, str]) -> tuple[Got, Got]:
        ours = self.proxy.post(body | {"messages": new}, **sent)
        theirs = self.proxy.post(body | {"messages": self.messages}, x_session_id=self.whole)
        assert ours.status == theirs.status
        calls = self.upstream.to(self.model)
        assert calls[-2].fields == calls[-1].fields
        return ours, theirs

    def rows(self, session: str) -> list[Any]:
        """Return what is stored of a session, its ids replaced by numbers in the order in which they occur."""
        lines = [(x["message"], x["id"], x["parent"], x["complete"]) for x in stored(self.proxy, session)]
        told = shown(self.proxy, session)
        figures = [[row[name] for name in FIGURES] for row in told["requests"]]
        text = json.dumps([lines, figures, *(told[name] for name in ("threads", "steps", "baselines", "summaries"))])
        order: dict[str, str] = {}
        return list(json.loads(ID.sub(lambda found: order.setdefault(found[0], f"id {len(order)}"), text)))


@pytest.mark.parametrize("model", list(POLICIES))
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(conversation=turns, preamble=st.booleans())
def test_deltas_are_as_good_as_whole_histories(
    served: Proxy, upstream: FakeUpstream, model: str, conversation: list[Turn], preamble: bool
) -> None:
    upstream.clear()
    client = Client(served, upstream, model)
    new: list[Json] = [{"role": "system", "content": "Be brief."}] if preamble else []
    for turn in conversation:
        if turn.later_system:
            new.append({"role": "system", "content": f"Mind the {turn.subject}."})
        new.append(user(f"{turn.calls} calls {long_text(turn.subject, turn.tokens)}"))
        reply = client.say(new, turn)
        while reply.get("tool_calls"):
            reply = client.say(
                [result(one["id"], long_text("found", turn.tokens)) for one in reply["tool_calls"]], turn
            )
        new = []
    assert client.rows(client.delta) == client.rows(client.whole)
