"""The composition root: makes every part once, says in one list what a request passes, starts and stops the rest."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from transom.middleware.access_log import AccessLog
from transom.middleware.cors import Cors
from transom.middleware.limits import InFlight, Limits, Reason
from transom.middleware.request_id import RequestId
from transom.policies.items import Message
from transom.policies.registry import trimmers
from transom.policies.trimmer import Trimmer
from transom.proxy.admin.api import Admin
from transom.proxy.ahead import Ahead
from transom.proxy.allowance import Allowance
from transom.proxy.answers import Answer
from transom.proxy.attempts import Attempts
from transom.proxy.chat import ChatEndpoint
from transom.proxy.claims import Claims
from transom.proxy.config.own_trimmers import load_trimmer
from transom.proxy.config.schema import Config
from transom.proxy.config.settings import Model, Settings
from transom.proxy.config.watch import LiveSettings, Outcome, watch
from transom.proxy.delivery import Courier
from transom.proxy.drain import Drain
from transom.proxy.endpoints.answer import on_error, on_http_error
from transom.proxy.endpoints.health import Health
from transom.proxy.endpoints.models import Models
from transom.proxy.endpoints.permission import STATELESS
from transom.proxy.endpoints.relayed import RelayedEndpoints
from transom.proxy.errors import Overloaded, ShuttingDown, TransomError
from transom.proxy.factors import Factors
from transom.proxy.metrics import Metrics
from transom.proxy.overflow import LearnedWindows
from transom.proxy.passes import Pass
from transom.proxy.preparation import Preparation
from transom.proxy.rates import TenantRequests
from transom.proxy.recorder import Recorder
from transom.proxy.sessions import Links, Sessions
from transom.proxy.summaries import Summariser, Tools
from transom.proxy.summary_calls import SummaryCalls, UpstreamOf
from transom.proxy.threads import HistoryCache
from transom.proxy.tokens import Tokenizer
from transom.proxy.upkeep import Upkeep
from transom.proxy.upstream.base import Deadlines, Upstream
from transom.proxy.upstream.demo import DemoUpstream
from transom.proxy.upstream.direct import DirectUpstream
from transom.proxy.upstream.litellm import LitellmUpstream
from transom.proxy.views import content_text, spoken
from transom.proxy.windowing import Windowing
from transom.proxy.wire.messages import read_messages_off_loop
from transom.storage.sql_store import SqlStore
from transom.storage.store import CannotOpen, StorageError

CHAT = "/v1/chat/completions"
METRICS_EVERY_S = 1.0  # how old may be what a sibling process shows of this one
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})

HANDLERS = {TransomError: on_error, HTTPException: on_http_error}

log = structlog.get_logger("transom.app")


def build(live: LiveSettings, drain: Drain) -> "Transom":
    """Build the application; ends the process with one line in the log where the database cannot be used."""
    try:
        return Transom(live, drain)
    except CannotOpen as refusal:
        storage = live.current.config.storage
        # The address of a server may hold a password; a file's does not.
        named = {"database": storage.url} if storage.is_sqlite else {}
        log.error("cannot start", reason=str(refusal), **named)
        raise SystemExit(1) from None


class Transom:
    """All parts of one process. `app` is what clients talk to, `admin_app` what stands on `admin_port`."""

    def __init__(self, live: LiveSettings, drain: Drain) -> None:
        config = live.current.config
        self._live, self._drain = live, drain
        self.metrics = Metrics()
        live.counted = self._reloaded
        storage = config.storage
        self.store = SqlStore.open(
            storage.url, self.metrics, synchronous=storage.synchronous, timeout_s=storage.timeout_s
        )
        self._cache = HistoryCache(int(config.limits.history_cache_mb * 1_048_576))
        self._links = Links()
        self._tokenizer = Tokenizer()
        limits = config.limits
        self._direct = DirectUpstream(_deadlines(config))
        self._litellm = LitellmUpstream(self._direct)
        self._upstreams: dict[str, Upstream] = {
            "direct": self._direct,
            "litellm": self._litellm,
            "demo": DemoUpstream(self._tokenizer.count),
        }
        in_flight = InFlight(limits.in_flight, limits.in_flight_bytes, lambda: drain.draining)
        self._in_flight, self.metrics.in_flight = in_flight, lambda: in_flight.requests
        self._shared = not config.storage.is_sqlite  # whether other processes may use the same database
        self._recorder = Recorder(self.store, self._cache, self._links, self._parse)
        self._upkeep = Upkeep(self.store, self._settings, self.metrics, self._forget)
        self._tenant_requests = TenantRequests()
        upstream_of = UpstreamOf(self._upstreams)
        self._chat_endpoint = self._chat(upstream_of, shared=self._shared)
        self._relayed = RelayedEndpoints(
            self._settings, upstream_of, self.metrics, self._tenant_requests, drain.expired
        )
        rest = self._rest(with_admin=config.server.admin_port is None)
        # What a request passes, the outermost last.
        bounded = Limits(Front(self._chat_endpoint, rest), self._in_flight, self._refuse)
        self._cors = Cors(bounded, config.server.cors_origins)
        self.app = _logged(self._cors)
        self.admin_app = _logged(self._admin_site()) if config.server.admin_port is not None else None

    def _reloaded(self, outcome: Outcome) -> None:
        """Count a reload, and hold what comes from now on to the new limits."""
        self.metrics.reload(outcome)
        config = self._live.current.config
        self._direct.limit(_deadlines(config))
        self._load_libraries()
        self._in_flight.max_requests = config.limits.in_flight
        self._in_flight.max_bytes = config.limits.in_flight_bytes
        self._cors.allow(config.server.cors_origins)

    def _load_libraries(self) -> None:
        """Begin to load what takes seconds, if the configuration needs it."""
        if self._live.current.uses_litellm:
            self._litellm.prepare(self._live.current.models.values())

    # ------------------------------------------------------------------ the parts
    def _settings(self) -> Settings:
        return self._live.current

    async def _parse(self, slices: Sequence[bytes], start: int) -> list[Message]:
        return await read_messages_off_loop(slices, self._tokenizer, start)

    def _chat(self, upstream_of: UpstreamOf, *, shared: bool) -> ChatEndpoint:
        recorder, count = self._recorder, self._tokenizer.count
        factors, windows = Factors(self.store, shared=shared), LearnedWindows(time.monotonic)
        self._summariser = self._summaries(SummaryCalls(upstream_of, self.metrics), factors, windows, shared=shared)
        known: dict[tuple[str, ...], tuple[tuple[str, Trimmer], ...]] = {}

        def trimmers_of(names: tuple[str, ...]) -> tuple[tuple[str, Trimmer], ...]:
            if names not in known:
                known[names] = trimmers(names, load_trimmer)
            return known[names]

        windowing = Windowing(trimmers_of, count, content_text, self._summariser, self._find_step, shared=shared)
        self._ahead = Ahead(windowing, self._summariser, lambda: self._drain.draining)
        preparation = Preparation(
            settings=self._settings,
            sessions=Sessions(self.store, self._cache, self._links, self._parse, shared=shared),
            windowing=windowing,
            factors=factors,
            windows=windows,
            counter=self._tokenizer,
            metrics=self.metrics,
            requests=self._tenant_requests,
        )
        courier = Courier(
            attempts=Attempts(upstream_of, self.metrics),
            recorder=recorder,
            windowing=windowing,
            factors=factors,
            windows=windows,
            metrics=self.metrics,
            ahead=self._ahead,
            find_step=self._find_step if shared else None,
        )
        return ChatEndpoint(preparation, courier, self._drain.expired)

    def _summaries(self, calls: SummaryCalls, factors: Factors, windows: LearnedWindows, *, shared: bool) -> Summariser:
        def window_of(model: Model) -> int | None:
            window = model.max_input_tokens or windows.of(model.name)
            return None if window is None else int(window / factors.of(model.name))

        count = self._tokenizer.count
        allowance = Allowance(calls, count)
        tools = Tools(allowance, calls.model_of, spoken, count, self._recorder.summary)
        tools = replace(tools, window=window_of, affords=allowance.affords)
        if shared:
            tools = replace(tools, claim=Claims(self.store).claim, refresh=self._refresh)
        return Summariser(tools, self.metrics)

    async def _find_step(self, request: Pass) -> bytes | None:
        """Return the recipe stored for this very request; another process may have written it, and its summary."""
        try:
            row = await self.store.step(request.state.id, *request.key)
        except StorageError:
            return None
        if row is not None and self._shared:
            await self._refresh(request)
        return row.recipe if row is not None else None

    async def _refresh(self, request: Pass) -> None:
        """Learn what other processes have folded of the thread since it was looked up."""
        state, length = request.state, request.conversation.length
        with suppress(StorageError):
            loaded = await self.store.load(state.id, request.thread.ids[:length], length)
            state.learn(loaded.summaries, loaded.baselines)

    def _forget(self, session: bytes) -> None:
        self._cache.forget(session)
        self._links.forget(session)

    def _erase(self, session: bytes) -> None:
        self._cache.erase(session)
        self._links.forget(session)

    # ------------------------------------------------------------------ the sites
    async def _refuse(self, scope: Scope, _receive: Receive, send: Send, reason: Reason) -> None:
        error: TransomError = ShuttingDown() if reason == "draining" else Overloaded()
        scope["state"].get("log", {})["code"] = error.code
        await Answer(send).error(error)

    def _rest(self, *, with_admin: bool) -> Starlette:
        models, health, admin = Models(self._settings), self._health(), self._admin()
        routes = [
            Route("/v1/models", models.list),
            Route("/v1/models/{name:path}", models.one),
            *(Route(f"/v1/{path}", self._relayed) for path in (*STATELESS, "{path:path}")),
            Route("/healthz", health.alive),
            Route("/readyz", health.ready),
        ]
        if with_admin:
            routes += [Route("/metrics", health.shared_metrics), *admin.routes()]
        site = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=HANDLERS)
        site.router.redirect_slashes = False
        return site

    def _admin_site(self) -> Starlette:
        health = self._health()
        routes = [
            Route("/healthz", health.alive),
            Route("/readyz", health.ready),
            Route("/metrics", health.metrics),
            *self._admin().routes(),
        ]
        return Starlette(routes=routes, exception_handlers=HANDLERS)

    def _health(self) -> Health:
        return Health(self._upkeep, self._recorder, self._settings, self._drain)

    def _admin(self) -> Admin:
        return Admin(self.store, self._settings, self._erase)

    async def _settle_metrics(self) -> None:
        while True:
            await asyncio.sleep(METRICS_EVERY_S)
            self.metrics.settle()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        stop = asyncio.Event()
        self._load_libraries()
        expiring = (self._chat_endpoint.expire(), self._relayed.expire())
        work = (watch(self._live, stop), self._upkeep.run(stop), self._settle_metrics(), *expiring)
        tasks = [asyncio.create_task(one) for one in work]
        try:
            yield
        finally:
            stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._ahead.close()
            await self._summariser.close()
            for upstream in self._upstreams.values():
                with suppress(Exception):
                    await upstream.aclose()
            await self.store.close()


def _logged(site: ASGIApp) -> ASGIApp:
    """Give every request of a site its id and its line in the log."""
    return RequestId(AccessLog(site, QUIET))


def _deadlines(config: Config) -> Deadlines:
    limits = config.limits
    return Deadlines(limits.connect_s, limits.first_byte_s, limits.idle_stream_s, limits.total_s)


class Front:
    """Chat completions go straight to their endpoint; everything else takes the way through Starlette's routes."""

    def __init__(self, chat: ASGIApp, rest: ASGIApp) -> None:
        self._chat, self._rest = chat, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == CHAT and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await self._rest(scope, receive, send)
