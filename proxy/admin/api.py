"""`/admin/*`: look into stored conversations and erase them; every read of content leaves an audit row."""

import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from transom.proxy.auth import authorise
from transom.proxy.config.settings import DEFAULT, Settings
from transom.proxy.endpoints.answer import json_response
from transom.proxy.errors import BadRequest, SessionNotFound, StorageUnavailable
from transom.storage.identity import key_hash, user_hash
from transom.storage.rows import AuditRow, Batch
from transom.storage.store import SessionFilter, StorageError, Store

LIMIT = 100
MOST = 1_000


class Admin:
    """The admin API. `forget` drops an erased session from every cache."""

    def __init__(self, store: Store, settings: Callable[[], Settings], forget: Callable[[bytes], None]) -> None:
        self._store, self._settings, self._forget = store, settings, forget

    def routes(self) -> list[Route]:
        """Return the routes below `/admin`."""
        return [
            Route("/admin/sessions", self.sessions),
            Route("/admin/sessions/{id}", self.session, methods=["GET"]),
            Route("/admin/sessions/{id}", self.delete_session, methods=["DELETE"]),
            Route("/admin/sessions/{id}/export", self.export),
            Route("/admin/users/{id:path}", self.delete_user, methods=["DELETE"]),
            Route("/admin/requests/{id:path}", self.requests),
        ]

    async def _audit(self, who: str, what: str, session: bytes | None = None, tenant: str | None = None) -> None:
        try:
            await self._store.write(Batch(audit=[AuditRow(who, what, tenant, session, time.time())]))
        except StorageError:
            raise StorageUnavailable from None

    async def sessions(self, request: Request) -> Response:
        """List sessions, newest first; `key` is a client's own name for one, of the tenant `default` unless named."""
        authorise(request.scope, self._settings())
        query = request.query_params
        limit = _whole(query.get("limit"), LIMIT)
        tenant, key = query.get("tenant"), query.get("key")
        wanted = SessionFilter(tenant=tenant)
        if key is not None:
            tenant = tenant or DEFAULT
            wanted = SessionFilter(tenant=tenant, key_hash=key_hash(self._store.secret, tenant, key))
        try:
            page = await self._store.sessions(wanted, limit, query.get("after"))
        except LookupError:
            raise BadRequest("`after` is not a page of this list.", param="after") from None
        except StorageError:
            raise StorageUnavailable from None
        return json_response({"sessions": page.sessions, "after": page.after})

    async def session(self, request: Request) -> Response:
        """Return one session's threads and timeline, without message texts."""
        who = authorise(request.scope, self._settings())
        session = _id(request)
        try:
            found = await self._store.session(session)
        except StorageError:
            raise StorageUnavailable from None
        if found is None:
            raise SessionNotFound("There is no such session.")
        await self._audit(who, "session", session)
        return json_response(found)

    async def export(self, request: Request) -> Response:
        """Stream a session as JSON lines."""
        who = authorise(request.scope, self._settings())
        session = _id(request)
        try:
            found = await self._store.session(session)
        except StorageError:
            raise StorageUnavailable from None
        if found is None:
            raise SessionNotFound("There is no such session.")
        await self._audit(who, "export", session)

        async def lines() -> AsyncIterator[bytes]:
            async for line in self._store.export(session):
                yield line

        return StreamingResponse(lines(), media_type="application/jsonl")

    async def delete_session(self, request: Request) -> Response:
        """Erase a session from the database and from memory."""
        who = authorise(request.scope, self._settings())
        session = _id(request)
        self._forget(session)
        try:
            erased = await self._store.delete_session(session)
        except StorageError:
            raise StorageUnavailable from None
        self._forget(session)
        if not erased:
            raise SessionNotFound("There is no such session.")
        await self._audit(who, "erase session")
        return json_response({"deleted": True})

    async def delete_user(self, request: Request) -> Response:
        """Erase all sessions of a tenant's user."""
        who = authorise(request.scope, self._settings())
        tenant = request.query_params.get("tenant")
        if not tenant:
            raise BadRequest("Name the tenant whose user this is.", param="tenant")
        user = user_hash(self._store.secret, tenant, request.path_params["id"])
        try:
            erased = await self._store.delete_user(tenant, user)
        except StorageError:
            raise StorageUnavailable from None
        for session in erased:
            self._forget(session)
        await self._audit(who, "erase user", tenant=tenant)
        return json_response({"deleted": len(erased)})

    async def requests(self, request: Request) -> Response:
        """Return what became of a request, by its own or its completion's id."""
        who = authorise(request.scope, self._settings())
        try:
            found = await self._store.requests(request.path_params["id"])
        except StorageError:
            raise StorageUnavailable from None
        if not found:
            raise SessionNotFound("There is no such request.")
        await self._audit(who, "request")
        return json_response({"requests": found})


def _id(request: Request) -> bytes:
    try:
        return bytes.fromhex(request.path_params["id"])
    except ValueError:
        raise SessionNotFound("There is no such session.") from None


def _whole(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MOST:
        raise BadRequest(f"`limit` must be a number from 1 to {MOST:,}.", param="limit")
    return int(text)
