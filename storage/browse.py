"""What a person asks of the store: lists, one session, exports, sizes; reads only, and far from the hot path.

It goes through SQLAlchemy's asynchronous engine. Every query ends before its rows are handed on, so that a slow reader
never keeps a transaction open (on SQLite that would let the write-ahead log grow without end).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, Select, Table, create_engine, event, func, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from transom.storage import schema
from transom.storage.database import Database
from transom.storage.driver import Fault, storage_error
from transom.storage.store import Observer, SessionFilter, SessionPage, StorageError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

EXPORT_ROWS = 200
PATIENCE_S = 10.0
"""A person waits longer than a request does: counting a million rows takes its time."""
_HEX_ID = 32
_HIDDEN = frozenset({"seq", "session", "turn"})


class Browser:
    """Reads for the admin API and the command line; ids come out as hex, times as seconds since the epoch."""

    def __init__(self, database: Database, observer: Observer, *, timeout_s: float) -> None:
        self._driver = database.driver
        self._observer = observer
        self._timeout_s = timeout_s
        self._url = database.url
        self._engine: AsyncEngine | None = None
        self._plain = _plain_engine(database.url)

    async def _opened(self) -> "AsyncEngine":
        """Return the engine, made when somebody asks: most processes never need it, and it takes 4 MB and 0.1 s."""
        if self._engine is None:
            engine = await asyncio.to_thread(_asynchronous_engine, self._url)
            self._engine = self._engine or engine
        return self._engine

    async def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            await self._engine.dispose()

    async def sessions(self, wanted: SessionFilter, limit: int, after: str | None) -> SessionPage:
        """List sessions, newest first."""
        table = schema.sessions
        messages = select(func.count()).where(schema.messages.c.session == table.c.seq).scalar_subquery()
        query = select(*table.c, messages.label("messages")).where(*_conditions(wanted))
        if after is not None:
            query = query.where(table.c.seq < await self._place(after))
        rows = await self._rows("sessions", query.order_by(table.c.seq.desc()).limit(limit + 1))
        listed = [_session(row) for row in rows[:limit]]
        return SessionPage(listed, str(rows[limit - 1]["seq"]) if len(rows) > limit else None)

    async def _place(self, after: str) -> int:
        """Return the place in the list that a cursor or a session's id stands for."""
        table = schema.sessions
        if len(after) == _HEX_ID:
            rows = await self._rows("sessions", select(table.c.seq).where(table.c.id == _bytes(after)))
            if rows:
                return int(rows[0]["seq"])
        elif after.isascii() and after.isdigit():
            return int(after)
        raise LookupError("no session stands at this place of the list")

    async def session(self, session: bytes) -> dict[str, Any] | None:
        """Return one session with its threads, requests, steps and summaries, without any message's text."""
        table, message = schema.sessions, schema.messages
        number = select(table.c.seq).where(table.c.id == session).scalar_subquery()
        columns = [message.c[name] for name in ("id", "parent", "role", "tokens", "items")]
        found, messages, *others = await self._all(
            "session",
            select(*table.c).where(table.c.id == session),
            select(*columns).where(message.c.session == number).order_by(message.c.seq),
            *(_of(other, number) for other, _ in _TOLD_WITH_A_SESSION),
        )
        if not found:
            return None
        listed = [_plain(row) for row in messages]
        places = {message["id"]: place for place, message in enumerate(listed)}
        told = {
            other.name: [described(row) for row in rows]
            for (other, described), rows in zip(_TOLD_WITH_A_SESSION, others, strict=True)
        }
        told["steps"].sort(key=lambda step: places.get(step["head"], -1))
        return {**_session({**found[0], "messages": listed}), "threads": _threads(listed), **told}

    async def requests(self, any_id: str) -> list[dict[str, Any]]:
        """Return the requests with this request or completion id, newest first."""
        table, owner = schema.requests, schema.sessions
        named = table.alias()
        completed = select(named.c.seq).where(named.c.completion_id == any_id)
        query = (
            select(*table.c, owner.c.tenant, owner.c.id.label("owner"))
            .join(owner, owner.c.seq == table.c.session)
            .where(or_(table.c.id == any_id, table.c.seq.in_(completed)))
            .order_by(table.c.seq.desc())
        )
        rows = await self._rows("requests", query)
        return [{"session": row.pop("owner").hex(), **_plain(row)} for row in rows]

    async def user_sessions(self, tenant: str, user: bytes) -> list[bytes]:
        """Return the ids of a user's sessions."""
        table = schema.sessions
        query = select(table.c.id).where(table.c.user_hash == user, table.c.tenant == tenant).order_by(table.c.seq)
        return [row["id"] for row in await self._rows("user", query)]

    async def export(self, session: bytes) -> AsyncIterator[bytes]:
        """Yield a session as JSON lines: session, preambles, messages, summaries, requests."""
        table = schema.sessions
        found = await self._rows("export", select(*table.c).where(table.c.id == session))
        if not found:
            return
        yield _line("session", _session(found[0]))
        number = found[0]["seq"]
        async for row in self._pages(schema.preambles, number):
            yield _content_line("preamble", "messages", row["payload"], id=row["id"].hex())
        unfinished = await self._unfinished(number)
        async for row in self._pages(schema.messages, number):
            parent = row["parent"] and row["parent"].hex()
            known = {"id": row["id"].hex(), "parent": parent, "complete": row["id"] not in unfinished}
            yield _content_line("message", "message", row["payload"], **known)
        async for row in self._pages(schema.summaries, number):
            yield _line("summary", _summary(row))
        async for row in self._pages(schema.requests, number):
            yield _line("request", _plain(row))

    async def _unfinished(self, number: int) -> set[bytes]:
        """Return the replies that came to no end: no request made them whole, and no message follows them."""
        request, message = schema.requests, schema.messages
        query = select(request.c.reply, request.c.complete).where(
            request.c.session == number, request.c.reply.is_not(None)
        )
        broken: set[bytes] = set()
        whole: set[bytes] = set()
        for row in await self._rows("export", query):
            reply = row["reply"]
            made = {reply[start : start + 16] for start in range(0, len(reply), 16)}
            (whole if row["complete"] else broken).update(made)
        broken -= whole
        if broken:
            parents = select(message.c.parent).where(message.c.session == number)
            broken -= {row["parent"] for row in await self._rows("export", parents)}
        return broken

    async def stats(self) -> dict[str, int]:
        """Return the number of rows per table and the size in bytes."""
        async with self._failing("stats"):
            return await asyncio.to_thread(self._counted)

    def _counted(self) -> dict[str, int]:
        """Count on a plain connection: this is done all the time, unlike all else here."""
        tables = [table for table in schema.metadata.sorted_tables if table is not schema.meta]
        with self._plain.connect() as connection:
            counts = [connection.execute(select(func.count()).select_from(table)) for table in tables]
            return {table.name: int(count.scalar_one()) for table, count in zip(tables, counts, strict=True)}

    async def _pages(self, table: Table, number: int) -> AsyncIterator[dict[str, Any]]:
        """Yield a session's rows in order, each page in a query of its own."""
        query = select(table.c.seq).where(table.c.session == number).order_by(table.c.seq)
        places = [row["seq"] for row in await self._rows("export", query)]
        for start in range(0, len(places), EXPORT_ROWS):
            page = _of(table, number).where(table.c.seq.in_(places[start : start + EXPORT_ROWS]))
            for row in await self._rows("export", page):
                yield row

    async def _rows(self, operation: str, query: Select[Any]) -> list[dict[str, Any]]:
        """Execute one query and return all its rows."""
        return (await self._all(operation, query))[0]

    async def _all(self, operation: str, *queries: Select[Any]) -> list[list[dict[str, Any]]]:
        """Execute queries on one connection and return all rows of each."""
        engine = await self._opened()
        async with self._failing(operation), engine.connect() as connection:
            results = [await connection.execute(query) for query in queries]
            return [[dict(row) for row in result.mappings()] for result in results]

    @asynccontextmanager
    async def _failing(self, operation: str) -> AsyncIterator[None]:
        """Turn what goes wrong inside into a StorageError."""
        try:
            async with asyncio.timeout(max(self._timeout_s, PATIENCE_S)):
                yield
        except TimeoutError:
            raise self._error(operation, Fault.BUSY) from None
        except DBAPIError as error:
            raise self._error(operation, self._driver.fault(error.orig or error, None)) from None
        except (OSError, UnicodeError, OverflowError) as error:
            raise self._error(operation, self._driver.fault(error, None)) from None

    def _error(self, operation: str, fault: Fault) -> StorageError:
        self._observer.storage_error(operation)
        return storage_error(operation, fault)


def _asynchronous_engine(url: URL) -> "AsyncEngine":
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    # NullPool: a connection whose task was cancelled is closed and never serves again
    engine = create_async_engine(url, poolclass=NullPool, hide_parameters=True)
    _never_write(engine.sync_engine)
    return engine


def _plain_engine(url: URL) -> Engine:
    plain = url.set(drivername="sqlite") if url.get_backend_name() == "sqlite" else url
    engine = create_engine(plain, poolclass=NullPool, hide_parameters=True)
    _never_write(engine)
    return engine


def _never_write(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _read_only)


def _read_only(connection: Any, _record: Any) -> None:
    """Make a connection of the engine unable to write."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA query_only = ON")
    cursor.close()


def _conditions(wanted: SessionFilter) -> Sequence[Any]:
    """Return what a filter asks for."""
    table = schema.sessions
    asked = (
        (wanted.tenant, table.c.tenant == wanted.tenant),
        (wanted.user_hash, table.c.user_hash == wanted.user_hash),
        (wanted.key_hash, table.c.key_hash == wanted.key_hash),
        (wanted.since, table.c.used_at >= (wanted.since or 0.0)),
        (wanted.until, table.c.used_at <= (wanted.until or 0.0)),
    )
    return [condition for value, condition in asked if value is not None]


def _of(table: Table, number: Any) -> Select[Any]:
    """Return a query for the rows of the session with this number, in order where the table keeps one."""
    columns = [column for column in table.c if column.name not in _HIDDEN]
    order = [table.c.seq] if "seq" in table.c else []
    return select(*columns).where(table.c.session == number).order_by(*order)


def _bytes(text: str) -> bytes:
    """Return the bytes of a hex id, of none if it is not hex."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that JSON can hold: ids as hex, no internal keys."""
    return {
        name: value.hex() if isinstance(value, bytes) else value for name, value in row.items() if name not in _HIDDEN
    }


def _session(row: dict[str, Any]) -> dict[str, Any]:
    """Return a session for JSON."""
    listed = {
        "id": row["id"].hex(),
        "tenant": row["tenant"],
        "source": row["source"],
        "user": row["user_hash"] and row["user_hash"].hex(),
        "created": row["created_at"],
        "last_used": row["used_at"],
    }
    return {**listed, "messages": row["messages"]} if "messages" in row else listed


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    """Return a summary for JSON, its words included."""
    words = {"text": row["text"].decode(), **{name: json.loads(row[name]) for name in ("constraints", "ledger")}}
    return {**_plain({name: value for name, value in row.items() if name not in words}), **words}


def _with_recipe(row: dict[str, Any]) -> dict[str, Any]:
    """Return a step or a baseline for JSON."""
    return {**_plain(row), "recipe": json.loads(row["recipe"])}


_TOLD_WITH_A_SESSION = (
    (schema.requests, _plain),
    (schema.steps, _with_recipe),
    (schema.baselines, _with_recipe),
    (schema.summaries, _summary),
)


def _threads(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each chain from a root to an end, newest end first, with its length and tokens."""
    walked: dict[str, tuple[str, int, int]] = {}
    for message in messages:
        root, count, tokens = walked.get(message["parent"], (message["id"], 0, 0))
        walked[message["id"]] = (root, count + 1, tokens + message["tokens"])
    parents = {message["parent"] for message in messages}
    ends = [message["id"] for message in reversed(messages) if message["id"] not in parents]
    return [{"head": end, "root": walked[end][0], "messages": walked[end][1], "tokens": walked[end][2]} for end in ends]


def _line(kind: str, fields: dict[str, Any]) -> bytes:
    """Return a line of JSON."""
    return json.dumps({"type": kind, **fields}).encode("ascii") + b"\n"


def _content_line(kind: str, key: str, payload: bytes | None, **fields: Any) -> bytes:
    """Return a line of JSON with the client's own bytes spliced in; line ends between its tokens become blanks."""
    front = json.dumps({"type": kind, **fields}).encode("ascii")[:-1]
    own = b"null" if payload is None else payload.replace(b"\n", b" ").replace(b"\r", b" ")
    return front + b', "' + key.encode("ascii") + b'": ' + own + b"}\n"
