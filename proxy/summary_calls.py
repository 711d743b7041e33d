"""Call a model for a summary: its own small request, nothing of the client's in it but the credentials it must have."""

import asyncio
import time
from dataclasses import replace

from transom.proxy.auth import check_own_key
from transom.proxy.config.settings import Model
from transom.proxy.errors import ClientError, TransomError
from transom.proxy.folding import FoldJob
from transom.proxy.metrics import Metrics
from transom.proxy.relay import Reported, answer_in
from transom.proxy.summaries import REASONING_TOKENS, SummaryReply
from transom.proxy.upstream.base import Upstream, UpstreamRequest
from transom.proxy.wire.chat import OFF_LOOP_BYTES
from transom.proxy.wire.edit import text_message
from transom.proxy.wire.messages import fragments
from transom.proxy.wire.raw import assemble, members, quote
from transom.proxy.wire.reply import Reply

MOST_BYTES = 4 * 1024 * 1024


class UpstreamOf:
    """Find the adapter that reaches a model."""

    def __init__(self, upstreams: dict[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __call__(self, model: Model) -> Upstream:
        return self._upstreams[model.provider]


class SummaryCalls:
    """The `CallModel` of the running proxy."""

    def __init__(self, upstream_of: UpstreamOf, metrics: Metrics) -> None:
        self._upstream_of, self._metrics = upstream_of, metrics

    def model_of(self, job: FoldJob) -> Model:
        """Return the model that writes a fold's summary: the policy's if the tenant has it, else the request's own."""
        route = job.request.route
        try:
            return job.request.conversation.caller.tenant.summary_route(route)
        except ClientError:
            return route.model

    async def __call__(self, job: FoldJob, instruction: str, record: str, limit: int) -> SummaryReply:
        """Send one summary request; whatever goes wrong becomes a `failure`, never an exception of the upstream's."""
        model, caller = self.model_of(job), job.request.conversation.caller
        request = UpstreamRequest(
            model=model,
            body=await _body_off_loop(model, instruction, record, limit),
            headers=[("content-type", "application/json")],
            bearer=caller.bearer,
        )
        started = time.perf_counter()
        try:
            check_own_key(caller.tenant, caller.bearer, model)
            reply = await self._upstream_of(model).send(request)
            try:
                status, body = reply.status, await reply.read(MOST_BYTES)
            finally:
                await reply.close()
            if status != 200:
                return SummaryReply(failure=f"status {status}")
            answer = (await answer_in(body, model.name)).reply
            self._count(job, model, answer, time.perf_counter() - started)
            cost = answer.usage.prompt + answer.usage.completion if answer.usage else None
            return replace(_judged(answer), cost=cost)
        except Reported:
            return SummaryReply(failure="an error with status 200")
        except TransomError as error:
            return SummaryReply(failure=error.code)

    def _count(self, job: FoldJob, model: Model, answer: Reply, seconds: float) -> None:
        usage = answer.usage
        self._metrics.summary_call(
            job.request.conversation.caller.tenant.name,
            model.label,
            seconds=seconds,
            prompt=usage.prompt if usage else 0,
            completion=usage.completion if usage else 0,
        )


async def _body_off_loop(model: Model, instruction: str, record: str, limit: int) -> bytes:
    """Write the request, in a thread where quoting and joining take long."""
    if len(record) <= OFF_LOOP_BYTES:
        return _body(model, instruction, record, limit)
    return await asyncio.to_thread(_body, model, instruction, record, limit)


def _body(model: Model, instruction: str, record: str, limit: int) -> bytes:
    """Write the request. The output limit goes under the name the model takes; models that think get more of it."""
    parameter = model.output_limit_param or ("max_completion_tokens" if model.reasons else "max_tokens")
    most = limit + (REASONING_TOKENS if model.reasons else 0)
    messages = [text_message("system", instruction), text_message("user", record)]
    fields = [
        ("model", quote(model.upstream_model or model.name)),
        ("messages", b"[" + b",".join(messages) + b"]"),
        (parameter, str(most).encode()),
        ("stream", b"false"),
    ]
    return assemble(fields)


def _judged(answer: Reply) -> SummaryReply:
    message, finish = answer.messages[0], answer.finish[0]
    if finish == "content_filter":
        return SummaryReply(failure="content_filter")
    fields = dict(members(message))
    if fields.get("refusal", b"null") not in (b"null", b'""'):
        return SummaryReply(failure="refusal")
    opened = fragments(message)
    if opened.calls:
        return SummaryReply(failure="tool call")
    content = fields.get("content", b"null")
    text = "\n".join(opened.texts) if content != b"null" else ""
    return SummaryReply(text=_without_thoughts(text), finish=finish)


def _without_thoughts(text: str) -> str:
    """Drop reasoning that a local model wrote into its answer between `<think>` tags."""
    head, opening, rest = text.partition("<think>")
    if not opening or head.strip():
        return text
    _, closing, answer = rest.partition("</think>")
    return answer.strip() if closing else ""
