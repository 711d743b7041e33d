"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and Prometheus, without a key, without a tenant."""

import time
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from transom.proxy.auth import authorise
from transom.proxy.config.settings import Settings
from transom.proxy.drain import Drain
from transom.proxy.endpoints.answer import json_response
from transom.proxy.metrics import CONTENT_TYPE
from transom.proxy.recorder import Recorder
from transom.proxy.upkeep import Upkeep
from transom.storage.store import StorageError

PING_EVERY_S = 1.0  # readiness is asked for often and by many; the database is not


class Health:
    """The three endpoints."""

    def __init__(self, upkeep: Upkeep, recorder: Recorder, settings: Callable[[], Settings], drain: Drain) -> None:
        self._upkeep, self._recorder, self._settings, self._drain = upkeep, recorder, settings, drain
        self._asked_at = float("-inf")
        self._well = True

    async def alive(self, _request: Request) -> Response:
        """Tell that the process answers; never touches the database."""
        return json_response({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Tell whether requests should be sent here."""
        if self._drain.draining:
            return json_response({"status": "draining"}, 503)
        if await self._storage_answers():
            return json_response({"status": "ok"})
        degraded = self._settings().config.storage.on_error == "continue"
        return json_response({"status": "degraded" if degraded else "storage unavailable"}, 200 if degraded else 503)

    async def shared_metrics(self, request: Request) -> Response:
        """Do as `metrics`, on a port that clients reach too: for whom the administrator's side is open."""
        authorise(request.scope, self._settings())
        return await self.metrics(request)

    async def metrics(self, _request: Request) -> Response:
        """Return all metrics in Prometheus' text format."""
        with suppress(StorageError):
            await self._upkeep.measure()
        return Response(self._upkeep.metrics.render(), media_type=CONTENT_TYPE)

    async def _storage_answers(self) -> bool:
        now = time.monotonic()
        if now - self._asked_at >= PING_EVERY_S:
            self._asked_at = now
            try:
                await self._recorder.store.ping()
                self._well = True
            except StorageError:
                self._well = False
        return self._well and self._recorder.well
