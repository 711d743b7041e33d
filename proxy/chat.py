"""`POST /v1/chat/completions` as a plain ASGI application: the life of one request, from its bytes to its last byte.

    read the body -> prepare (whose, which conversation, the cap, the window) -> record -> send -> relay -> record

Every failure becomes an answer of OpenAI's shape; a client that leaves ends the work at once.
"""

import asyncio
import time
from dataclasses import dataclass, field

import structlog
from starlette.types import Receive, Scope, Send

from transom.middleware.body import ClientGone
from transom.proxy import errors
from transom.proxy.answers import Answer
from transom.proxy.delivery import Courier, Delivery
from transom.proxy.exchange import Exchange
from transom.proxy.logs import describe
from transom.proxy.preparation import Preparation
from transom.proxy.request_body import json_body

log = structlog.get_logger("transom.chat")

WATCH_AFTER_S = 0.02  # most answers of a fast upstream are out by then, and nobody need watch
CLIENT_GONE = 499  # for metrics and the log; nobody receives it


@dataclass(slots=True)
class ChatEndpoint:
    """The endpoint; one instance serves all requests. `expired` is set when requests under way must end at once."""

    preparation: Preparation
    courier: Courier
    expired: asyncio.Event
    serving: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def expire(self) -> None:
        """End the requests under way once the server's time is up."""
        await self.expired.wait()
        for task in list(self.serving):
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await ChatRequest(self, scope, receive, Answer(send)).serve()


class Watch:
    """Cancels the work of a request whose client leaves. `gone` tells that this was the reason."""

    __slots__ = ("_answer", "_receive", "_task", "_timer", "_watching", "gone")

    def __init__(self, receive: Receive, answer: Answer, task: "asyncio.Task[None]") -> None:
        self._receive, self._answer, self._task = receive, answer, task
        self._timer: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None
        self.gone = False

    def begin(self) -> None:
        """Watch from a moment later on, once the body has been read."""
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def _start(self) -> None:
        self._timer = None
        self._watching = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._answer.complete:  # the server says the same of a client that has got everything
            self.gone = True
            self._task.cancel()

    def end(self) -> None:
        """Stop watching. What is let go of here would hold the request in a cycle."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()


class ChatRequest:
    """One request on its way."""

    def __init__(self, endpoint: ChatEndpoint, scope: Scope, receive: Receive, answer: Answer) -> None:
        self._endpoint, self._scope, self._receive, self._answer = endpoint, scope, receive, answer
        self._started = time.perf_counter()
        self._log: dict[str, object] = scope["state"].get("log", {})  # fields of the access log's line
        self._exchange: Exchange | None = None
        self._delivery: Delivery | None = None
        self._gone = False

    async def serve(self) -> None:
        """Serve the request to whatever end it comes."""
        task = asyncio.current_task()
        assert task is not None
        self._endpoint.serving.add(task)
        watch = Watch(self._receive, self._answer, task)
        try:
            await self._answered(watch)
        except ClientGone:
            self._gone = True
        except asyncio.CancelledError:
            self._gone = watch.gone
            await self._cancelled(task)
        finally:
            watch.end()
            self._endpoint.serving.discard(task)
            if self._exchange is not None:
                self._exchange.conversation.release()
            self._endpoint.preparation.requests.end(self._scope["state"])
            self._measure()

    async def _answered(self, watch: Watch) -> None:
        """Answer, if need be with an error; the client may leave during either."""
        try:
            limit = self._endpoint.preparation.settings().config.limits.body_bytes
            body = await json_body(self._scope, self._receive, limit)
            watch.begin()
            await self._serve(body)
        except ClientGone:
            raise
        except errors.TransomError as error:
            await self._fail(error)
        except Exception as fault:  # noqa: BLE001  a fault of this program is an answer of OpenAI's shape as well
            log.error("unexpected error", error=describe(fault))
            await self._fail(errors.TransomError())

    async def _serve(self, body: bytes) -> None:
        preparation = self._endpoint.preparation
        exchange = self._exchange = await preparation.exchange(self._scope, body, self._started)
        delivery = self._delivery = Delivery(self._endpoint.courier, exchange, self._answer)
        await preparation.decide(exchange, self._answer)
        await delivery.begin()
        await delivery.send()

    # ------------------------------------------------------------------ the end
    async def _fail(self, error: errors.TransomError) -> None:
        exchange, delivery = self._exchange, self._delivery
        if delivery is not None and not delivery.finished:
            await asyncio.shield(delivery.finish(None, complete=False, status=error.status))
        self._log["code"] = error.code
        await self._answer.error(error, exchange.window_headers() if exchange is not None else ())

    async def _cancelled(self, task: "asyncio.Task[None]") -> None:
        """End a request whose client left, or whose server ends; pass on any other cancellation."""
        if not (self._gone or self._endpoint.expired.is_set()):
            raise asyncio.CancelledError
        task.uncancel()
        if self._delivery is not None and not self._delivery.finished:
            await self._delivery.finish(None, complete=False, status=CLIENT_GONE)
        if not self._gone:
            await self._fail(errors.ShuttingDown())

    def _measure(self) -> None:
        """Count the request, and say in the log what became of it; no content."""
        metrics, exchange = self._endpoint.courier.metrics, self._exchange
        status = self._answer.status or CLIENT_GONE
        if exchange is None:
            metrics.request("unknown", "other", "chat", status)
            return
        elapsed, label = exchange.elapsed(), exchange.route.model.label
        overhead = max(0.0, elapsed - exchange.upstream_s - exchange.waited_s)
        metrics.request(exchange.tenant, label, "chat", status)
        metrics.request_seconds(exchange.tenant, label, exchange.call.stream, elapsed)
        metrics.overhead("total", overhead)
        fields = {
            "tenant": exchange.tenant,
            "model": label,
            "policy": exchange.route.policy_name,
            "session": exchange.conversation.state.id.hex(),
            "window": ",".join(exchange.labels),
            "stream": exchange.call.stream,
            "overhead_ms": round(overhead * 1000, 2),
        }
        decision = exchange.decision or exchange.rehearsal
        if decision is not None:
            fields |= {"tokens_before": decision.before.tokens, "tokens_sent": decision.sent.tokens}
        if exchange.tool_limit is not None:
            fields["tool_limit"] = exchange.tool_limit
        if exchange.code is not None:
            fields["code"] = exchange.code
        self._log.update(fields)
