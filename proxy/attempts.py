"""Send an exchange upstream, once more in another form where the first was refused; nothing here talks to the client.

The other forms: without tools at the tool-call cap, for servers that do not know `tool_choice: "none"`; with the
summary merged into the system message, for models whose template allows one system message only; with neighbours of
role user merged, for those that demand alternating roles, and at the cap without the note behind the tool results.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from transom.policies.view import WHOLE
from transom.proxy.errors import UpstreamBadResponse
from transom.proxy.exchange import Exchange
from transom.proxy.metrics import Metrics
from transom.proxy.overflow import read_overflow
from transom.proxy.redaction import redact
from transom.proxy.summary_calls import UpstreamOf
from transom.proxy.upstream.auth import error_reply
from transom.proxy.upstream.base import UpstreamReply, UpstreamRequest
from transom.proxy.upstream.headers import request_headers
from transom.proxy.views import payloads
from transom.proxy.wire.chat import compose
from transom.proxy.wire.report import Report

BAD_REQUEST = 400
ERROR_BYTES = 4 * 1024 * 1024
NO_TOOLS = b'"none"'
SYSTEM_REFUSAL = re.compile(
    rb"system (?:message|role|prompt)[^\"]{0,60}(?:must|should|only|not supported|at the begin|first)"
    rb"|only (?:user|one system)|unexpected role|multiple system|single.system",
    re.IGNORECASE,
)
ALTERNATE_REFUSAL = re.compile(
    rb"roles?[^\"]{0,40}alternat|alternat[^\"]{0,40}roles?|role[^a-z]{0,3}user[^a-z]{0,3}after role[^a-z]{0,3}tool",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Form:
    """One way to send an exchange."""

    drop_tools: bool = False
    merged: bool = False
    alternate: bool = False
    first: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """An upstream's 4xx or 5xx, as the client may see it."""

    status: int
    body: bytes
    headers: dict[str, str]


class Attempts:
    """Sends exchanges; remembers which models want the summary merged. One for the whole process."""

    def __init__(self, upstream_of: UpstreamOf, metrics: Metrics) -> None:
        self._upstream_of, self._metrics = upstream_of, metrics
        self._merged: set[str] = set()
        self._alternate: set[str] = set()

    def form(self, exchange: Exchange) -> Form:
        """Return the form to begin with."""
        model = exchange.route.model.name
        return Form(merged=model in self._merged, alternate=model in self._alternate)

    async def send(self, exchange: Exchange, form: Form) -> UpstreamReply | Refused:
        """Send in this form, then in the forms a refusal calls for; return the answer, or the last refusal."""
        while True:
            reply = await self._send_once(exchange, form)
            if reply.status < 400:
                return reply
            try:
                body = await reply.read(ERROR_BYTES)
            finally:
                await reply.close()
            other = self._other_form(exchange, form, reply.status, body)
            if other is None:
                shown = error_reply(
                    reply.status, body, model=exchange.route.model, bearer=exchange.conversation.caller.bearer
                )
                return Refused(reply.status, shown, dict(reply.headers))
            form = other

    @staticmethod
    def reported(exchange: Exchange, report: Report, headers: Mapping[str, str]) -> Refused:
        """Return as the refusal it is what an answer of status 200 reported.

        Raises UpstreamBadResponse, in the server's words, where it names no status.
        """
        model, bearer = exchange.route.model, exchange.conversation.caller.bearer
        status = report.status or (BAD_REQUEST if read_overflow(BAD_REQUEST, report.body) is not None else None)
        if status is None:
            raise UpstreamBadResponse(redact(report.message, model.secrets if bearer is None else ()))
        return Refused(status, error_reply(status, report.body, model=model, bearer=bearer), dict(headers))

    def _other_form(self, exchange: Exchange, form: Form, status: int, body: bytes) -> Form | None:
        if status not in (400, 404, 422, 500):
            return None
        changed = exchange.decision is not None and not exchange.decision.view.is_whole
        if changed or exchange.note is not None:
            other = self._other_roles(exchange, form, body)
            if other is not None:
                return other
        if exchange.capped and status != 500 and not form.drop_tools and exchange.call.has_tools:
            return replace(form, drop_tools=True, first=False)
        return None

    def _other_roles(self, exchange: Exchange, form: Form, body: bytes) -> Form | None:
        """Return the form for a model that refused the roles of what is ours in a request, and remember it."""
        model, policy = exchange.route.model.name, exchange.route.policy
        view = exchange.decision.view if exchange.decision is not None else WHOLE
        other = form
        if ALTERNATE_REFUSAL.search(body):
            self._alternate.add(model)
            other = replace(other, alternate=True)
        elif not SYSTEM_REFUSAL.search(body):
            return None
        if view.summary_message is not None and policy.summary_role == "auto":
            self._merged.add(model)
            other = replace(other, merged=True)
        return replace(other, first=False) if other != form else None

    async def _send_once(self, exchange: Exchange, form: Form) -> UpstreamReply:
        model, call, caller = exchange.route.model, exchange.call, exchange.conversation.caller
        request = UpstreamRequest(
            model=model,
            body=self._body(exchange, form),
            headers=request_headers(
                exchange.headers, model, client_key=caller.bearer is not None, first_attempt=form.first
            ),
            bearer=caller.bearer,
            stream=call.stream,
        )
        started = time.perf_counter()
        try:
            return await self._upstream_of(model).send(request)
        finally:
            exchange.upstream_s += time.perf_counter() - started

    @staticmethod
    def _body(exchange: Exchange, form: Form) -> bytes:
        call, model, decision = exchange.call, exchange.route.model, exchange.decision
        history = exchange.conversation.history
        if decision is None or decision.view.is_whole:
            sent = [m.payload for m in history.preamble] + [m.payload for m in history.messages[: len(history)]]
        else:
            sent = payloads(history, decision.view, exchange.route.policy, merged=form.merged, alternate=form.alternate)
        if exchange.note is not None and not form.alternate:
            sent.append(exchange.note)
        return compose(
            call,
            sent,
            model=model.upstream_model or call.model,
            stream_usage=model.usage_in_stream,
            tool_choice=NO_TOOLS if exchange.capped and call.has_tools and not form.drop_tools else None,
            drop_tools=form.drop_tools,
        )
