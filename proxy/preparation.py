"""From a request's bytes to what will be sent: whose it is, which conversation, the tool-call cap, the window.

Nothing here talks to an upstream, but for the summary that a window may need.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import Scope

from transom.policies.tool_limit import NOTE, tool_limit_reached
from transom.policies.view import Size
from transom.proxy import errors
from transom.proxy.answers import Answer, Keepalive
from transom.proxy.auth import check_own_key, identify
from transom.proxy.budgets import budget_for, cut_hash, policy_hash
from transom.proxy.config.schema import Limits
from transom.proxy.config.settings import Route, Settings
from transom.proxy.exchange import Exchange
from transom.proxy.factors import Factors
from transom.proxy.metrics import Metrics
from transom.proxy.modes import Mode, mode_of, overridden_route
from transom.proxy.overflow import LearnedWindows
from transom.proxy.passes import Decision, Pass, stable_tokens
from transom.proxy.rates import TenantRequests
from transom.proxy.sessions import Caller, Conversation, Sessions, named_user, session_key
from transom.proxy.threads import Sent
from transom.proxy.tokens import Counter
from transom.proxy.views import content_text
from transom.proxy.windowing import Windowing
from transom.proxy.wire.chat import ChatCall, count_overhead, parse_call_off_loop
from transom.proxy.wire.edit import text_message

STORE = b"x-transom-store"


@dataclass(frozen=True, slots=True)
class Preparation:
    """Makes exchanges ready to be sent; one for the whole process."""

    settings: Callable[[], Settings]
    sessions: Sessions
    windowing: Windowing
    factors: Factors
    windows: LearnedWindows
    counter: Counter
    metrics: Metrics
    requests: TenantRequests

    async def exchange(self, scope: Scope, body: bytes, started: float) -> Exchange:
        """Return the exchange a body asks for, its conversation opened and its budget known.

        Raises ClientError, each with the place in the request.
        """
        settings = self.settings()
        headers = dict(scope["headers"])
        tenant, bearer = identify(scope, settings, headers)
        log = scope["state"].get("log", {})
        log["tenant"] = tenant.name  # in the line of a request that is refused from here on, too; so is the model
        self.requests.begin(tenant, scope["state"])
        call = await parse_call_off_loop(body)
        limit = settings.config.limits.messages
        if call.exceeds(limit):
            raise _too_many(limit)
        route = tenant.route(call.model)
        log["model"] = route.model.label
        check_own_key(tenant, bearer, route.model)
        route = overridden_route(route, tenant, headers)
        key = session_key(headers, call, settings.config.session)
        store = tenant.store != "none" and not _unstored(headers)
        caller = Caller(tenant, bearer, named_user(headers, call, settings.config.session), store)
        opening = time.perf_counter()
        self.metrics.overhead("parse", opening - started)
        conversation = await self.sessions.open(caller, call, key, settings.config.session.missing, headers)
        self.metrics.overhead("history", time.perf_counter() - opening)
        self.metrics.session_source(tenant.name, conversation.source)
        self.metrics.history_match(conversation.match)
        try:
            await self.factors.refresh()
            _check_size(conversation, settings.config.limits)
            mode = mode_of(route, tenant, headers, conversation.thread.ids[0] if conversation.length else None)
            exchange = self._exchange(scope, settings, call, route, mode, conversation)
        except BaseException:  # the client may have left meanwhile
            conversation.release()
            raise
        exchange.started = started
        return exchange

    def _exchange(
        self, scope: Scope, settings: Settings, call: ChatCall, route: Route, mode: Mode, conversation: Conversation
    ) -> Exchange:
        policy, model = route.policy, route.model
        reason = tool_limit_reached(conversation.history, policy, content_text) if mode != "off" else None
        capped = reason is not None and mode == "on"
        note = text_message("user", NOTE) if capped and policy.tool_limit_note else None
        budget = budget_for(
            route,
            window=model.max_input_tokens or self.windows.of(model.name),
            overhead=count_overhead(call, self.counter) if call.overhead else 0,
            output_limit=call.output_limit,
            factor=self.factors.of(model.name),
            note=Size(self.counter.count(NOTE) + 4, 1) if note is not None else Size(0, 0),
        )
        exchange = Exchange(
            request_id=scope["state"]["request_id"],
            headers=scope["headers"],
            settings=settings,
            call=call,
            route=route,
            mode=mode,
            conversation=conversation,
            budget=budget,
            policy_hash=policy_hash(route, budget),
            tool_limit=reason,
            note=note,
            storage_failed=conversation.storage_failed,
        )
        if reason is not None:
            self.metrics.tool_limit(exchange.tenant, route.policy_name, policy.on_tool_limit if capped else mode)
        return exchange

    async def decide(self, exchange: Exchange, answer: Answer) -> None:
        """Decide what is sent. A streaming client hears from us meanwhile.

        Raises ToolCallLimitExceeded and ContextLengthExceeded where the policy prefers an error.
        """
        policy, conversation = exchange.route.policy, exchange.conversation
        if exchange.capped and policy.on_tool_limit == "error":
            raise errors.ToolCallLimitExceeded
        if not policy.trimmers or exchange.mode == "off" or not conversation.length:
            exchange.labels = ["none"]
            return
        started = time.perf_counter()
        request = Pass(conversation, exchange.route, exchange.budget, exchange.policy_hash, cut_hash(exchange.route))
        exchange.request = request
        if exchange.mode != "on":
            exchange.rehearsal = await self.windowing.rehearse(request)
            exchange.labels = [exchange.mode, *(x for x in exchange.rehearsal.labels if x != "fits")]
            self._count(exchange, exchange.rehearsal)
            return
        wait = exchange.settings.config.server.sse_keepalive_s if exchange.call.stream else None
        keepalive = Keepalive(answer, wait, exchange.window_headers)
        try:
            decision = exchange.decision = await self.windowing.decide(request)
        finally:
            await keepalive.stop()
        exchange.waited_s = decision.waited_s
        self.settle(exchange, decision)
        self.metrics.overhead("window", time.perf_counter() - started - decision.waited_s)
        if decision.waited_s:
            self.metrics.overhead("summary", decision.waited_s)
        self._count(exchange, decision)
        if decision.over_budget and policy.on_unfit == "error":
            raise _too_long(exchange, decision)

    @staticmethod
    def settle(exchange: Exchange, decision: Decision) -> None:
        """Take over a decision as what is sent."""
        conversation, request = exchange.conversation, exchange.request
        exchange.decision, exchange.labels = decision, decision.labels
        if request is not None:
            exchange.stable = stable_tokens(conversation.thread.sent, request, decision)
        exchange.sent = Sent(conversation.preamble, decision.view, conversation.length, decision.sent.tokens)

    def _count(self, exchange: Exchange, decision: Decision) -> None:
        metrics, tenant, policy = self.metrics, exchange.tenant, exchange.route.policy_name
        if exchange.mode in ("on", "audit", "control"):
            for word in decision.labels:
                metrics.window_pass(tenant, policy, word, exchange.mode)
        if exchange.mode != "on":
            return
        received, sent = decision.before.tokens, decision.sent.tokens
        metrics.prompt(tenant, exchange.route.model.label, received=received, sent=sent, stable=exchange.stable)
        for trimmer, items in decision.removed.items():
            metrics.items_removed(tenant, policy, trimmer, items)
        if decision.over_budget:
            metrics.over_budget(tenant, policy)


def _check_size(conversation: Conversation, limits: Limits) -> None:
    """Hold what a delta makes of its conversation to what a whole one may be."""
    if conversation.is_delta and conversation.length > limits.messages:
        raise _too_many(limits.messages)
    if conversation.is_delta and conversation.thread.size > limits.body_bytes:
        raise errors.BodyTooLarge("The conversation is larger than this server accepts a request to be.")


def _too_many(limit: int) -> errors.BadRequest:
    return errors.BadRequest(f"A request may hold at most {limit:,} messages.", param="messages")


def _unstored(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether the client wants nothing stored. Raises BadRequest for any other wish: it may have meant that."""
    wish = headers.get(STORE)
    if wish is None:
        return False
    if wish.lower() != b"none":
        raise errors.BadRequest("X-Transom-Store takes `none`.", param="X-Transom-Store")
    return True


def _too_long(exchange: Exchange, decision: Decision) -> errors.ContextLengthExceeded:
    """Return the error that says by how much the policy's limits are exceeded."""
    limits, sent = exchange.budget.most_sent, decision.sent
    compared = (("tokens", sent.tokens, limits.tokens), ("items", sent.items, limits.items))
    over = [
        f"{has:,} {unit} where {most:,} are allowed" for unit, has, most in compared if most is not None and has > most
    ]
    return errors.ContextLengthExceeded(
        f"The window policy `{exchange.route.policy_name}` refuses the request (on_unfit: error): what it may not "
        f"remove has {' and '.join(over)}.",
        param="messages",
    )
