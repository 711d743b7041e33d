"""The endpoints beside chat, relayed as they are: no window, no history, bytes up and bytes down.

    whose, what -> read the body -> which model -> send under the upstream's name -> relay

1. Of a request only the model's name is read, and replaced where the upstream's differs.
2. JSON answers of ordinary size go out whole, so that a failure on the way still has a status; everything else goes out
   as it comes.
3. An answer that breaks after its beginning never ends as if it were whole: streams of events get an error event, any
   other is cut off.
4. A client that leaves ends the upstream call; so does the end of the server's time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from transom.middleware.body import ClientGone
from transom.proxy import errors
from transom.proxy.answers import JSON, Answer
from transom.proxy.attempts import ERROR_BYTES
from transom.proxy.auth import check_own_key, identify
from transom.proxy.chat import CLIENT_GONE, Watch
from transom.proxy.config.settings import OTHER, Model, Settings, Tenant
from transom.proxy.endpoints.permission import Endpoint, endpoint
from transom.proxy.logs import describe
from transom.proxy.metrics import Metrics
from transom.proxy.rates import TenantRequests
from transom.proxy.request_body import whole_body
from transom.proxy.sse import SseSplitter
from transom.proxy.summary_calls import UpstreamOf
from transom.proxy.upstream.auth import error_code, error_reply, redact_bytes
from transom.proxy.upstream.base import UpstreamReply, UpstreamRequest
from transom.proxy.upstream.headers import is_event_stream, request_headers, response_headers
from transom.proxy.wire.relayed import RelayedCall, parse_relayed_off_loop
from transom.proxy.wire.reply import read_usage

log = structlog.get_logger("transom.relayed")

BYPASSED = ((b"x-transom-window", b"bypassed"),)
HELD_BYTES = 1_048_576  # of a JSON answer, before it goes out as it comes
Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class RelayedEndpoints:
    """All of these endpoints; one instance serves all requests. `expired` is set when requests must end at once."""

    settings: Callable[[], Settings]
    upstream_of: UpstreamOf
    metrics: Metrics
    requests: TenantRequests
    expired: asyncio.Event
    serving: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def expire(self) -> None:
        """End the requests under way once the server's time is up."""
        await self.expired.wait()
        for task in list(self.serving):
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await _Request(self, scope, receive, Answer(send)).serve()


class _Request:
    """One request on its way."""

    def __init__(self, endpoints: RelayedEndpoints, scope: Scope, receive: Receive, answer: Answer) -> None:
        self._endpoints, self._scope, self._receive, self._answer = endpoints, scope, receive, answer
        self._started = time.perf_counter()
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._tenant: Tenant | None = None
        self._bearer: str | None = None
        self._endpoint: Endpoint | None = None
        self._model: Model | None = None
        self._label = OTHER
        self._streamed = False

    async def serve(self) -> None:
        """Serve the request to whatever end it comes."""
        task = asyncio.current_task()
        assert task is not None
        self._endpoints.serving.add(task)
        watch = Watch(self._receive, self._answer, task)
        try:
            await self._serve(watch)
        except ClientGone:
            pass
        except errors.TransomError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            if not (watch.gone or self._endpoints.expired.is_set()):
                raise
            task.uncancel()
            if not watch.gone:
                await self._fail(errors.ShuttingDown())
        except Exception as fault:  # noqa: BLE001  a fault of this program is an answer of OpenAI's shape as well
            log.error("unexpected error", error=describe(fault))
            await self._fail(errors.TransomError())
        finally:
            watch.end()
            self._endpoints.serving.discard(task)
            self._endpoints.requests.end(self._scope["state"])
            self._measure()

    async def _serve(self, watch: Watch) -> None:
        endpoints, scope = self._endpoints, self._scope
        settings = endpoints.settings()
        self._tenant, self._bearer = identify(scope, settings, self._headers)
        self._endpoint = endpoint(scope["method"], scope["path"], self._tenant, own_key=self._bearer is not None)
        endpoints.requests.begin(self._tenant, scope["state"])
        body = await whole_body(scope, self._receive, settings.config.limits.body_bytes)
        watch.begin()
        content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        call = await parse_relayed_off_loop(body, content_type, any_type=not self._endpoint.stateless)
        await self._send(call, self._target(call.model, self._tenant, self._endpoint))

    # ------------------------------------------------------------------ the upstream
    def _target(self, name: str | None, tenant: Tenant, called: Endpoint) -> Model:
        """Return the model whose upstream is called."""
        if name is not None:
            model: Model | None = tenant.route(name).model
        elif called.stateless:
            model = tenant.unnamed_model()
            if model is None:
                raise errors.BadRequest("This endpoint needs the name of a model here.", param="model")
        else:
            model = _home(tenant, self._bearer)
        assert model is not None
        if model.provider == "litellm":
            raise errors.BadRequest("This model can be used for chat completions only.", param="model")
        check_own_key(tenant, self._bearer, model)
        self._model = model
        self._label = model.label if name is not None else OTHER
        return model

    async def _send(self, call: RelayedCall, model: Model) -> None:
        scope, called = self._scope, self._endpoint
        assert called is not None
        query = scope["query_string"].decode("latin-1")
        request = UpstreamRequest(
            model=model,
            body=call.named(model.upstream_model) if model.upstream_model is not None else call.body,
            headers=self._request_headers(call, model),
            bearer=self._bearer,
            path=f"{called.path}?{query}" if query else called.path,
            method=scope["method"],
        )
        started = time.perf_counter()
        reply = await self._endpoints.upstream_of(model).send(request)
        try:
            await self._relay(reply, model)
        finally:
            await reply.close()
            self._endpoints.metrics.upstream_seconds(self._label, model.provider, time.perf_counter() - started)

    def _request_headers(self, call: RelayedCall, model: Model) -> list[tuple[str, str]]:
        """Return the headers that go up; the body is sent as what it was read as, and as nothing else."""
        headers = request_headers(self._scope["headers"], model, client_key=self._bearer is not None)
        if call.content_type is None:
            return headers
        return [*(pair for pair in headers if pair[0] != "content-type"), ("content-type", call.content_type)]

    # ------------------------------------------------------------------ the answer
    async def _relay(self, reply: UpstreamReply, model: Model) -> None:
        headers = [*response_headers(reply.headers, request_id=False), *BYPASSED]
        if reply.status >= 400:
            body = await reply.read(ERROR_BYTES)
            self._scope["state"].get("log", {})["code"] = error_code(body)
            shown = error_reply(reply.status, body, model=model, bearer=self._bearer)
            await self._answer.whole(reply.status, shown, [JSON, *(h for h in headers if h[0] != b"content-type")])
        elif is_event_stream(reply.headers):
            await self._relay_events(reply, model, [pair for pair in headers if pair[0] != b"content-type"])
        else:
            await self._relay_bytes(reply, model, headers)

    async def _relay_events(self, reply: UpstreamReply, model: Model, headers: Headers) -> None:
        """Pass whole events on, so that an error event can follow the last one."""
        answer, splitter = self._answer, SseSplitter()
        self._streamed = True
        async for chunk in reply.chunks():
            block = splitter.feed(chunk)
            if block:
                await answer.open_stream(headers)
                await answer.part(self._without_keys(block, model))
        if not (answer.started or splitter.rest):
            raise errors.UpstreamBadResponse
        await answer.open_stream(headers)
        await answer.close(self._without_keys(splitter.rest, model))

    def _without_keys(self, block: bytes, model: Model) -> bytes:
        """Return events as the client may see them: an error among them may quote our key."""
        return block if self._bearer is not None or b'"error"' not in block else redact_bytes(block, model.secrets)

    async def _relay_bytes(self, reply: UpstreamReply, model: Model, headers: Headers) -> None:
        called = self._endpoint
        content_type = reply.headers.get("content-type", "").lower()
        room = HELD_BYTES if "json" in content_type else 0
        held, size, whole = [], 0, True
        chunks = aiter(reply.chunks())
        async for piece in chunks:
            held.append(piece)
            size += len(piece)
            if size > room:
                whole = False
                break
        if called is not None and called.stateless and (not size or content_type.startswith("text/html")):
            raise errors.UpstreamBadResponse
        if whole and size:
            body = b"".join(held)
            self._count_tokens(body)
            await self._answer.whole(reply.status, self._without_keys(body, model), headers)
            return
        await self._answer.begin(reply.status, headers)
        for piece in held:
            await self._answer.part(piece)
        async for piece in chunks:
            await self._answer.part(piece)
        await self._answer.close()

    async def _fail(self, error: errors.TransomError) -> None:
        self._scope["state"].get("log", {})["code"] = error.code
        if self._answer.started and not self._answer.streaming:
            log.warning("answer cut off", code=error.code)
        await self._answer.error(error, BYPASSED if self._model is not None else ())

    # ------------------------------------------------------------------ the figures
    def _count_tokens(self, body: bytes) -> None:
        try:
            usage = read_usage(_decode(body).usage)
        except (msgspec.DecodeError, RecursionError):
            return
        if usage is not None and self._tenant is not None:
            self._endpoints.metrics.usage(
                self._tenant.name, self._label, prompt=usage.prompt, cached=usage.cached, completion=usage.completion
            )

    def _measure(self) -> None:
        """Count the request, and say in the log what became of it; no content."""
        metrics = self._endpoints.metrics
        tenant = self._tenant.name if self._tenant is not None else "unknown"
        called = self._endpoint.label if self._endpoint is not None else OTHER
        metrics.request(tenant, self._label, called, self._answer.status or CLIENT_GONE)
        fields: dict[str, object] = {"tenant": tenant}
        if self._model is not None:
            metrics.request_seconds(tenant, self._label, self._streamed, time.perf_counter() - self._started)
            fields |= {"model": self._label, "window": "bypassed", "stream": self._streamed}
        self._scope["state"].get("log", {}).update(fields)


class _Metered(msgspec.Struct):
    usage: object = None


_decode = msgspec.json.Decoder(_Metered).decode


def _home(tenant: Tenant, bearer: str | None) -> Model:
    """Return where the account is whose objects are meant: that of the entry `"*"`, else the one all models share."""
    anything = tenant.unnamed_model()
    if anything is not None:
        return anything
    models = [model for model in tenant.models_allowed() if model.provider != "litellm"]
    if len({(model.api_base, bearer or model.api_key, *model.extra_headers.items()) for model in models}) != 1:
        raise errors.BadRequest("This endpoint names no model, and the models of this key do not share one account.")
    return models[0]
