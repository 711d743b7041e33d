"""Requests as windowing and its neighbours see them, without a client, a wire or a database.

The messages are those of `tests.policies.builders`: 4 tokens each and one for each word, unless told otherwise.
"""

from collections.abc import Sequence
from typing import Any

from tests.policies.builders import words
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.options import resolve_policy
from transom.policies.registry import trimmers
from transom.policies.view import Size, View
from transom.proxy.budgets import Budget, budget_for, cut_hash, policy_hash
from transom.proxy.config.settings import Model, Route, Tenant
from transom.proxy.folding import Summaries
from transom.proxy.passes import Pass
from transom.proxy.sessions import Caller, Conversation
from transom.proxy.threads import SessionState, Thread
from transom.proxy.windowing import FindStep, Windowing
from transom.storage.rows import SummaryRow

MODEL = Model(name="m", provider="direct", upstream_model="m", label="m")
NOTHING = Size(0, 0)


def tenant(**more: Any) -> Tenant:
    """Return a tenant that may do everything."""
    plain: dict[str, Any] = {
        "name": "acme",
        "key_hashes": (),
        "policy_name": "p",
        "policy": resolve_policy({}),
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
            key_hash=None,
            links_secret=None,
            persist=True,
            opened=False,
            known=known,
            length=len(history),
        )
        route = Route(MODEL, "p", resolve_policy({"strategy": "truncate"} | self.policy | policy))
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
