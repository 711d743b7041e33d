"""Delta histories: a client that sends only what is new has it put behind the stored thread it goes on from (02-http).

1. A delta names the head that it continues. A head is a whole answer, or the end of what was sent and never answered.
2. Only a session in which nothing was answered yet is begun without one.
3. A turn that was never answered, or not to the end, leaves the head where it was. While it is under way it is a turn.
4. The same turn again, known by its idempotency key or the retry counter of its client, may come as often as it likes.
5. Nothing is sent on without its history: what storage cannot say is an error.

Where this process alone writes and the answer is still at hand, nothing is read from the database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transom.policies.items import Message
from transom.proxy.errors import BadRequest, SessionConflict, SessionNotFound, StorageUnavailable
from transom.proxy.threads import Preambles, Reading, ReadMessages, SessionState, Thread, read
from transom.proxy.wire.raw import elements
from transom.storage.identity import ID_BYTES, chain, turn_mark
from transom.storage.rows import Place, PreambleRow
from transom.storage.store import StorageError, Store

HISTORY = b"x-session-history"
PARENT = b"x-transom-parent"
PARAM = "X-Session-History"
IDEMPOTENCY = b"idempotency-key"
RETRIES = b"x-stainless-retry-count"

NEEDS_PARENT = "This session holds messages: X-Transom-Parent must name the head of one of its threads."
UNDER_WAY = "Another turn of this thread is under way; go on from its answer."
NO_TEXT = "The text of this conversation was not stored; send the full history."


@dataclass(frozen=True, slots=True)
class Delta:
    """What a request with only the new messages says of its place; `parent` None begins a session.

    A `parent` that cannot be an id is kept as b"": it is one that nobody stored.
    """

    parent: bytes | None
    key: bytes | None = None  # the client's idempotency key
    retried: bool = False  # whether the client says that it sends this once more

    def mark(self, secret: bytes) -> bytes | None:
        """Return the mark of the turn under its session's secret, if the client named it."""
        return turn_mark(secret, self.key) if self.key else None


def tells_heads(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a client wants to know the heads of its threads: one that sends deltas, or is about to.

    Raises BadRequest for a value of `X-Session-History` that there is not.
    """
    wish = headers.get(HISTORY)
    if wish not in (None, b"full", b"delta"):
        raise BadRequest("X-Session-History takes `delta` or `full`.", param=PARAM)
    return wish is not None


def read_delta(headers: Mapping[bytes, bytes]) -> Delta | None:
    """Return what a delta's headers say; None where the request brings its whole history.

    Raises BadRequest for a parent without a delta: what was meant as one would go up without its history.
    """
    parent = headers.get(PARENT)
    if headers.get(HISTORY) != b"delta":
        if parent is not None:
            raise BadRequest("X-Transom-Parent goes with X-Session-History: delta.", param="X-Transom-Parent")
        return None
    named = None if parent is None or parent == b"none" else _as_id(parent)
    retries = headers.get(RETRIES, b"")
    return Delta(named, headers.get(IDEMPOTENCY), retries.isdigit() and retries.strip(b"0") != b"")


def _as_id(value: bytes) -> bytes:
    try:
        found = bytes.fromhex(value.decode("ascii"))
    except ValueError:
        return b""
    return found if len(found) == ID_BYTES else b""


class Deltas:
    """Finds what deltas go on from; one for the whole process."""

    def __init__(self, store: Store, preambles: Preambles, parse: ReadMessages, *, shared: bool) -> None:
        self._store, self._preambles, self._parse = store, preambles, parse
        self._shared = shared  # whether other processes write to the same database

    async def read(self, state: SessionState, delta: Delta, slices: Sequence[bytes]) -> Reading:
        """Read a delta's messages as if the request had brought those before them along.

        What is returned holds until the next await. Raises SessionNotFound, SessionConflict, StorageUnavailable, and
        BadRequest for messages that are none.
        """
        if delta.parent is None:
            reading = await read(slices, state.threads, self._preambles, self._parse)
            ids = chain(state.secret, (m.digest for m in reading.messages()))
            _check(state, delta, ids, await self._place(state, None, ids))
            return reading
        fresh = await self._parse(slices, 0)
        thread = None if self._shared else _answered(state, delta.parent)
        if thread is not None and thread.answered is not None:
            preamble = thread.answered.preamble
            base = _with_answer(state, thread, delta.parent)
            return Reading(preamble, base.preamble, base, len(base.ids), fresh, slices)
        return await self._stored(state, delta, delta.parent, fresh, slices)

    async def _stored(
        self, state: SessionState, delta: Delta, parent: bytes, fresh: list[Message], slices: Sequence[bytes]
    ) -> Reading:
        """Read a delta by what the database says of its place."""
        ids = chain(state.secret, (m.digest for m in fresh), parent)
        place = await self._place(state, parent, ids)
        if not place.stored:
            raise SessionNotFound(param="X-Transom-Parent")
        _check(state, delta, ids, place)
        preamble = await self._preamble(place.preamble)
        base = await self._loaded(state, ids[-1] if place.recorded else parent)
        _check(state, delta, ids, place)  # another one may have begun meanwhile
        start = base.ids.index(parent) + 1
        known = next((n for n, one in enumerate(ids) if base.ids[start + n : start + n + 1] != [one]), len(ids))
        raw = tuple(m.payload for m in preamble)
        return Reading(preamble, raw, base, start + known, fresh[known:], slices[known:])

    async def _place(self, state: SessionState, parent: bytes | None, ids: Sequence[bytes]) -> Place:
        try:
            return await self._store.place(state.id, parent, ids[-1] if ids else b"")
        except StorageError:
            raise StorageUnavailable from None

    async def _preamble(self, row: PreambleRow | None) -> tuple[Message, ...]:
        """Return the system messages last sent with a thread."""
        if row is None:
            return ()
        if row.payload is None:
            raise SessionNotFound(NO_TEXT, param="X-Transom-Parent")
        found = []
        for raw in elements(row.payload):
            message = self._preambles.get(raw) or (await self._parse([raw], 0))[0]
            self._preambles.keep(raw, message)
            found.append(message)
        return tuple(found)

    async def _loaded(self, state: SessionState, message: bytes) -> Thread:
        """Return a thread that holds a stored message: the one at hand, or read from where one at hand ends."""
        thread = _answered(state, message)
        if thread is not None:
            return _with_answer(state, thread, message)
        for thread in reversed(state.threads):
            if message in thread.ids:
                return thread
        newest = state.threads[-1] if state.threads else Thread()
        length = len(newest.ids)
        try:
            rows = await self._store.thread(state.id, message, newest.ids[-1] if length else b"")
        except StorageError:
            raise StorageUnavailable from None
        payloads = [row.payload for row in rows if row.payload is not None]
        if not rows or len(payloads) < len(rows):
            raise SessionNotFound(NO_TEXT if rows else None, param="X-Transom-Parent")
        messages = await self._parse(payloads, 0)
        if rows[0].parent is None:
            newest, length = Thread(), 0
        return _grown(state, newest, length, messages, [row.id for row in rows])


def _answered(state: SessionState, message: bytes) -> Thread | None:
    """Return the thread that a message is the whole answer to."""
    return next((t for t in state.threads if t.answered is not None and message in t.answered.choices), None)


def _with_answer(state: SessionState, thread: Thread, message: bytes) -> Thread:
    """Return the thread with its answer behind it."""
    assert thread.answered is not None
    return _grown(state, thread, len(thread.ids), [thread.answered.choices[message]], [message])


def _grown(
    state: SessionState, thread: Thread, length: int, messages: Sequence[Message], ids: Sequence[bytes]
) -> Thread:
    """Return the thread with stored messages behind its first `length`; a copy where requests hold it as it is."""
    thread.answered = None
    if thread.users or len(thread.ids) != length:
        raw, thread = thread.preamble, thread.fork(length)
        thread.preamble = raw
    if thread not in state.threads:
        state.threads.append(thread)
    thread.extend([m.payload for m in messages], messages)
    thread.ids.extend(ids)
    if thread.stored == length:
        thread.stored = len(thread.ids)
    return thread


def _check(state: SessionState, delta: Delta, ids: Sequence[bytes], place: Place) -> None:
    """Raise SessionConflict unless a turn may be added at its place, or is the same turn again."""
    mark = delta.mark(state.secret)
    rivals = [t for t in state.threads if t.users and (delta.parent is None or delta.parent in t.ids)]
    if place.recorded and (delta.retried or mark in place.turns):
        return
    if any(_is_turn(t, delta.parent, ids) and (delta.retried or t.turn == mark is not None) for t in rivals):
        return
    if not place.is_head:
        raise SessionConflict(NEEDS_PARENT if delta.parent is None else None, param="X-Transom-Parent")
    if rivals:
        raise SessionConflict(UNDER_WAY, param="X-Transom-Parent")


def _is_turn(thread: Thread, parent: bytes | None, ids: Sequence[bytes]) -> bool:
    """Tell whether a thread ends with these messages after `parent`."""
    start = 0 if parent is None else thread.ids.index(parent) + 1
    return thread.ids[start:] == ids
