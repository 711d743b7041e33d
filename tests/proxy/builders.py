"""Requests as the rooms behind the endpoint see them, without a client, a server or a database.

The messages are those of `tests.policies.builders`: 4 tokens each and one for each word, unless told otherwise.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from tests.policies.builders import words
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.options import Policy
from transom.policies.registry import trimmers
from transom.policies.view import Size, View
from transom.proxy.budgets import Budget, budget_for, cut_hash, policy_hash
from transom.proxy.config.settings import Model, Route, Settings, Tenant
from transom.proxy.exchange import Exchange
from transom.proxy.folding import Summaries
from transom.proxy.passes import Decision, Pass, before
from transom.proxy.sessions import Caller, Conversation
from transom.proxy.threads import SessionState, Thread
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.windowing import FindStep, Windowing
from transom.proxy.wire.chat import parse_call
from transom.proxy.wire.messages import read_messages
from transom.storage.rows import SummaryRow

MODEL = Model(name="m", provider="direct", upstream_model="m", label="m")
NOTHING = Size(0, 0)


def tenant(**more: Any) -> Tenant:
    """Return a tenant that may do everything."""
    plain: dict[str, Any] = {
        "name": "acme",
        "key_hashes": (),
        "policy_name": "p",
        "policy": Policy.model_validate({}),
        "models": None,
        "may_override": frozenset(),
        "relay": "all",
        "store": "full",
        "retention_days": None,
        "upstream_key": "config",
        "in_flight": None,
        "summary_tokens_per_day": None,
        "all_models": {"m": MODEL},
        "policies": {},
    }
    return Tenant(**plain | more)


def held_to(route: Route, **more: Any) -> Budget:
    """Return what a plain request of a route is held to, changed as told."""
    plain: dict[str, Any] = {"window": None, "overhead": 0, "output_limit": None, "factor": 1.0, "note": NOTHING}
    return budget_for(route, **plain | more)


class Talk:
    """One thread of one session that goes on request by request."""

    def __init__(self, *messages: Message, preamble: Sequence[Message] = (), **policy: Any) -> None:
        self.state = SessionState(b"s" * 16, b"k" * 32)
        self.thread = Thread()
        self.state.threads.append(self.thread)
        self.preamble = tuple(preamble)
        self.policy = policy
        self.tenant = tenant()
        self.say(*messages)

    def say(self, *messages: Message) -> None:
        """Append messages."""
        self.thread.extend([m.payload for m in messages], messages)
        self.thread.identify(self.state.secret)

    def request(self, *, known: bool = False, budget: dict[str, Any] | None = None, **policy: Any) -> Pass:
        """Return a request that sends all there is; `known` says that it may be a retry."""
        thread, history = self.thread, self.thread.history.with_preamble(self.preamble)
        conversation = Conversation(
            caller=Caller(self.tenant, None, None, store=True),
            state=self.state,
            thread=thread,
            history=history,
            preamble=b"preamble" if self.preamble else b"",
            source="header",
            match="extend",
            shown=None,
            key=None,
            links_secret=None,
            persist=True,
            known=known,
            length=len(history),
        )
        route = Route(MODEL, "p", Policy.model_validate({"strategy": "truncate"} | self.policy | policy))
        held = held_to(route, **budget or {})
        return Pass(conversation, route, held, policy_hash(route, held), cut_hash(route))


def content(message: Message) -> str:
    """Return a built message's text."""
    return message.payload.decode()


async def no_step(_request: Pass) -> bytes | None:
    """Find no stored step."""
    return None


def windowing(summaries: Summaries, find_step: FindStep = no_step, *, shared: bool = False) -> Windowing:
    """Return a windowing that counts words."""

    def load(name: str) -> object:
        raise AssertionError(name)

    return Windowing(lambda names: trimmers(names, load), words, content, summaries, find_step, shared=shared)


class NoSummaries:
    """Nobody writes summaries; `asked` counts who wanted one."""

    def __init__(self) -> None:
        self.asked = 0

    async def write(self, _job: object) -> SummaryRow | None:
        self.asked += 1
        return None

    def running(self, _request: Pass) -> None:
        return None

    def elsewhere(self, _request: Pass) -> bool:
        return False

    def joined(self, _request: Pass) -> None:
        return None


def positions(history: History, view: View) -> list[int]:
    """Return what of a thread a view sends."""
    return list(view.positions(len(history)))


# ---------------------------------------------------------------------- with a wire
class Reply:
    """An upstream's answer of any status, in the pieces given; `closed` tells whether it was let go."""

    def __init__(self, *pieces: bytes | Exception, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.pieces, self.status = pieces, status
        self.headers = headers or {"content-type": "application/json"}
        self.closed = False

    async def read(self, _limit: int) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def close(self) -> None:
        self.closed = True


def streamed(*pieces: bytes | Exception) -> Reply:
    """Return a stream of server-sent events in these pieces."""
    return Reply(*pieces, headers={"content-type": "text/event-stream"})


class Scripted:
    """An upstream that gives the answers it was told to, and keeps what it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[UpstreamRequest] = []

    async def send(self, request: UpstreamRequest) -> Reply:
        self.sent.append(request)
        return self.replies[len(self.sent) - 1]

    async def aclose(self) -> None:
        """Close nothing."""

    @property
    def messages(self) -> list[list[dict[str, Any]]]:
        """The messages of each request."""
        return [json.loads(request.body)["messages"] for request in self.sent]


class Words:
    """A counter of words."""

    def count(self, text: str) -> int:
        return words(text)


def exchange(body: dict[str, Any], view: View | None = None, *, capped: bool = False, **policy: Any) -> Exchange:
    """Return the exchange of a request: what it says goes up as this view, at the tool-call cap or not."""
    call = parse_call(json.dumps({"model": "m"} | body).encode())
    read = read_messages(call.slices, Words())
    first = next((p for p, m in enumerate(read) if not m.is_system), len(read))
    talk = Talk(*read[first:], preamble=read[:first], **policy)
    request = talk.request()
    decision = None
    if view is not None:
        decision = Decision(view, before(request), view.size(request.history), ["cut"])
    return Exchange(
        request_id="request",
        headers=[(b"idempotency-key", b"once")],
        settings=cast(Settings, None),  # nothing below the endpoint asks for it
        call=call,
        route=request.route,
        mode="on",
        conversation=request.conversation,
        budget=request.budget,
        policy_hash=request.policy,
        tool_limit="calls" if capped else None,
        note=None,
        request=request,
        decision=decision,
        labels=["cut"] if decision else ["fits"],
    )
