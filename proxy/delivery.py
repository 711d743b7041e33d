"""From what was decided to the client's last byte: record, send, relay, record again, let the end go.

Where the upstream refuses or disappoints, the other ways to send the same exchange are tried here, as long as nothing
has gone out to the client.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from transom.proxy import errors
from transom.proxy.ahead import Ahead
from transom.proxy.answers import JSON, Answer, waited
from transom.proxy.attempts import Attempts, Form, Refused
from transom.proxy.exchange import Exchange, Headers
from transom.proxy.factors import Factors
from transom.proxy.metrics import Metrics
from transom.proxy.overflow import LearnedWindows, Overflow, read_overflow, target
from transom.proxy.preparation import Preparation
from transom.proxy.recorder import Recorder
from transom.proxy.relay import OutOfTools, Reported, gave_up, read_whole
from transom.proxy.stream_relay import StreamRelay
from transom.proxy.upstream.auth import error_code
from transom.proxy.upstream.base import UpstreamReply
from transom.proxy.upstream.headers import is_event_stream, response_headers
from transom.proxy.windowing import FindStep, Windowing
from transom.proxy.wire import convert
from transom.proxy.wire.reply import Reply
from transom.proxy.wire.report import any_report

OVERFLOW_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Courier:
    """What deliveries need; one for the whole process."""

    attempts: Attempts
    recorder: Recorder
    windowing: Windowing
    factors: Factors
    windows: LearnedWindows
    metrics: Metrics
    ahead: Ahead
    find_step: FindStep | None  # where other processes decide too: what was decided first counts


class Delivery:
    """Delivers one exchange to one client."""

    def __init__(self, courier: Courier, exchange: Exchange, answer: Answer) -> None:
        self._courier, self._exchange, self._answer = courier, exchange, answer
        self.finished = False

    # ------------------------------------------------------------------ storage
    async def begin(self) -> None:
        """Hand over what is known; wait for it where the step decides what is sent, or where storage must not fail.

        Raises StorageUnavailable under `on_error: fail`.
        """
        exchange, storage = self._exchange, self._exchange.settings.config.storage
        strict = storage.on_error == "fail" or exchange.conversation.is_delta
        if exchange.storage_failed and strict:
            raise errors.StorageUnavailable
        decisive = strict or (exchange.decision is not None and exchange.decision.decisive)
        future = self._courier.recorder.begin(exchange, at_once=decisive)
        if future is not None:
            await self._committed(future, storage.timeout_s)
            if strict and exchange.storage_failed:
                raise errors.StorageUnavailable
            await self._agree()

    async def _agree(self) -> None:
        """Send what was decided first, should another process have decided this very request at the same time."""
        exchange, find = self._exchange, self._courier.find_step
        request, decision = exchange.request, exchange.decision
        if find is None or request is None or decision is None or decision.step is None:
            return
        recipe = await find(request)
        first = None
        if recipe is not None and recipe != decision.step.recipe:
            first = self._courier.windowing.read_step(request, recipe)
        request.state.remember_step(request.key, recipe if recipe and first else decision.step.recipe)
        if first is not None:
            Preparation.settle(exchange, first)

    async def _committed(self, work: "asyncio.Future[None] | None", seconds: float) -> None:
        if work is None:
            return
        started = time.perf_counter()
        if not await waited(work, seconds):
            self._exchange.storage_failed = True
        self._courier.metrics.overhead("storage", time.perf_counter() - started)

    async def finish(self, reply: Reply | None, *, complete: bool, status: int) -> None:
        """Record what came, and wait for the commit; not for ever, since the client has waited long enough."""
        self.finished = True
        exchange = self._exchange
        exchange.status = status
        if reply is not None:
            self._learn(reply)
        future = await self._courier.recorder.finish(exchange, reply, complete=complete)
        await self._committed(future, exchange.settings.config.storage.commit_wait_s)
        exchange.conversation.release()

    def _learn(self, reply: Reply) -> None:
        """Take the provider's own figures into account."""
        exchange, usage, courier = self._exchange, reply.usage, self._courier
        exchange.conversation.thread.sent = exchange.sent
        if usage is None:
            return
        model = exchange.route.model
        courier.metrics.usage(
            exchange.tenant, model.label, prompt=usage.prompt, cached=usage.cached, completion=usage.completion
        )
        courier.windows.contradict(model.name, usage.prompt)
        decision = exchange.decision
        if decision is None or exchange.conversation.history.has_media:
            return
        counted = decision.sent.tokens + exchange.budget.overhead + exchange.budget.note.tokens
        courier.metrics.estimate(model.label, counted * courier.factors.of(model.name) / usage.prompt)
        if courier.factors.learn(model.name, usage.prompt, counted, exchange.budget.overhead):
            courier.metrics.truncation_suspected(model.label)
            exchange.labels.append("upstream-truncated")

    # ------------------------------------------------------------------ the upstream
    async def send(self) -> None:
        """Send the exchange and relay the answer.

        Raises UpstreamError; what has gone out to the client by then stays.
        """
        exchange = self._exchange
        form = self._courier.attempts.form(exchange)
        try:
            await self._attempt(form)
        except OutOfTools:
            try:
                if not exchange.call.has_tools:
                    raise
                await self._attempt(replace(form, drop_tools=True, first=False))
            except OutOfTools:
                await self._give_up()
        if exchange.status == 200:
            self._courier.ahead.consider(exchange)

    async def _attempt(self, form: Form) -> None:
        """Send and relay; while the upstream finds the view too long, make it smaller, twice at most."""
        tries = 0
        while (refused := await self._sent(form)) is not None:
            overflow = read_overflow(refused.status, refused.body) if tries < OVERFLOW_RETRIES else None
            if overflow is None or not await self._shrunk(overflow):
                await self._refused(refused)
                return
            tries += 1
            form = replace(form, first=False)

    async def _sent(self, form: Form) -> Refused | None:
        """Send once and relay the answer; return it if it is a refusal, by its status or by its words."""
        exchange, model = self._exchange, self._exchange.route.model
        started = time.perf_counter()
        reply = await self._courier.attempts.send(exchange, form)
        if isinstance(reply, Refused):
            return reply
        try:
            if exchange.call.stream and is_event_stream(reply.headers):
                await self._relay_stream(reply)
            else:
                await self._relay_whole(reply)
        except Reported as reported:
            return self._courier.attempts.reported(exchange, reported.report, reply.headers)
        finally:
            await reply.close()
            self._courier.metrics.upstream_seconds(model.label, model.provider, time.perf_counter() - started)
        return None

    async def _shrunk(self, overflow: Overflow) -> bool:
        """Learn from a refusal and decide on a smaller view; False if nothing may or can be made smaller."""
        exchange, courier = self._exchange, self._courier
        decision, request, model = exchange.decision, exchange.request, exchange.route.model
        if overflow.window is not None and model.max_input_tokens is None:
            courier.windows.learn(model.name, overflow.window)
        if decision is None or request is None or exchange.route.policy.on_unfit == "error":
            return False
        aim = target(overflow, exchange.budget, decision.sent.tokens)
        smaller = await courier.windowing.shrink(request, decision, aim)
        if smaller is None:
            return False
        courier.metrics.length_retry(model.label)
        Preparation.settle(exchange, smaller)
        future = courier.recorder.again(exchange)
        if future is not None:
            await self._committed(future, exchange.settings.config.storage.timeout_s)
        return True

    # ------------------------------------------------------------------ the answer
    async def _relay_whole(self, reply: UpstreamReply) -> None:
        exchange, early = self._exchange, self._answer.started
        reading = time.perf_counter()
        whole = await read_whole(reply, exchange)
        exchange.upstream_s += time.perf_counter() - reading
        await self.finish(whole.reply, complete=whole.reply.complete, status=200)
        headers = response_headers(reply.headers, request_id=False)
        if exchange.call.stream:
            await self._answer.open_stream([*_no_type(headers), *exchange.window_headers()])
            parts = convert.as_stream(whole.body, include_usage=exchange.call.include_usage)
            await self._answer.close(
                b"".join(parts) + _comment(exchange.window_headers() if early else ()) + convert.DONE
            )
        else:
            await self._answer.whole(200, whole.body, [*_json(headers), *exchange.window_headers()])

    async def _relay_stream(self, reply: UpstreamReply) -> None:
        exchange, answer, model = self._exchange, self._answer, self._exchange.route.model
        early = answer.started
        relay = StreamRelay(answer, exchange, response_headers(reply.headers, request_id=False))
        reading = time.perf_counter()
        try:
            await relay.run(reply)
        except (errors.TransomError, asyncio.CancelledError) as problem:
            status = problem.status if isinstance(problem, errors.TransomError) else 499
            await asyncio.shield(self.finish(relay.reply, complete=False, status=status))
            raise
        finally:
            exchange.upstream_s += time.perf_counter() - reading
        if relay.first_token_s is not None:
            self._courier.metrics.first_token(model.label, model.provider, relay.first_token_s)
        said = dict(exchange.window_headers())
        await self.finish(relay.reply, complete=relay.reply.complete, status=200)
        now = dict(exchange.window_headers())
        late = now if early else {name: value for name, value in now.items() if said.get(name) != value}
        await relay.open()
        await answer.close(relay.ending(_comment(late.items())))
        await relay.settle()

    async def _refused(self, refused: Refused) -> None:
        self._exchange.code = error_code(refused.body)
        await self.finish(None, complete=False, status=refused.status)
        if self._answer.streaming:
            await self._answer.close(any_report(refused.body).event)
            return
        headers = [*_json(response_headers(refused.headers, request_id=False)), *self._exchange.window_headers()]
        await self._answer.whole(refused.status, refused.body, headers)

    async def _give_up(self) -> None:
        """End a turn whose model would neither answer nor stop calling tools."""
        exchange = self._exchange
        whole = gave_up(exchange.call.model)
        await self.finish(whole.reply, complete=True, status=200)
        if exchange.call.stream:
            await self._answer.open_stream(exchange.window_headers())
            await self._answer.close(b"".join(convert.as_stream(whole.body, include_usage=False)) + convert.DONE)
        else:
            await self._answer.whole(200, whole.body, [JSON, *exchange.window_headers()])


def _comment(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return as comment lines what a stream's headers could not say yet."""
    return b"".join(b": " + name + b"=" + value + b"\n" for name, value in headers)


def _no_type(headers: Headers) -> Headers:
    return [pair for pair in headers if pair[0] != b"content-type"]


def _json(headers: Headers) -> Headers:
    """Return the headers with a JSON content type, the upstream's own where it is one."""
    own = [pair for pair in headers if pair[0] == b"content-type" and b"json" in pair[1].lower()]
    return [*(own or [JSON]), *_no_type(headers)]
