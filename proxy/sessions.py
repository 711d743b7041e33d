"""Find the session a request belongs to, and its thread: by the client's key, or by how its history begins.

It reads headers and counts messages through what it is given; it decides nothing about windows and sends nothing.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from transom.policies.history import History
from transom.policies.items import Message
from transom.proxy import deltas
from transom.proxy.config.schema import Session as SessionSettings
from transom.proxy.config.settings import Tenant
from transom.proxy.deltas import Delta, Deltas
from transom.proxy.errors import BadRequest, InvalidSessionId, SessionRequired
from transom.proxy.metrics import HistoryMatch, SessionSource
from transom.proxy.threads import HistoryCache, Preambles, Reading, ReadMessages, SessionState, Thread, adopt, read
from transom.proxy.wire.chat import ChatCall
from transom.storage import identity
from transom.storage.store import StorageError, Store

LONGEST_KEY = 256  # characters of a session header
LINKS_IN_MEMORY = 200_000

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The name a client gave its session, and where it stood."""

    value: str
    source: SessionSource


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a request is made; `bearer` only where the client's own key goes upstream."""

    tenant: Tenant
    bearer: str | None
    user: str | None
    store: bool  # whether anything of this request may be written


@dataclass(slots=True)
class Conversation:
    """One request's place in a session: its thread, as long as it is now, under the request's preamble."""

    caller: Caller
    state: SessionState
    thread: Thread
    history: History
    preamble: bytes
    source: SessionSource
    match: HistoryMatch
    shown: str | None  # the session id for the response header
    key: str | None  # the name the client gave the session
    links_secret: bytes | None  # keyless sessions only
    persist: bool
    known: bool  # whether the last message came before: then this may be a retry
    length: int
    storage_failed: bool = False
    is_delta: bool = False  # whether the client sent only what is new: then nothing goes up that is not stored
    turn: bytes | None = None  # a delta's mark, see storage.identity.turn_mark
    tells_heads: bool = False  # whether the client wants to know:
    heads: Sequence[bytes] = ()  # the ids of a whole answer's choices
    held: bool = True  # whether this request still holds the thread, so that nothing grows under it

    def release(self) -> None:
        """Let later requests extend the thread again; to be called once or more."""
        if self.held:
            self.held = False
            self.thread.users -= 1

    @property
    def head(self) -> bytes:
        """Id of the last message the client sent; b"" if it sent nothing but a preamble."""
        return self.thread.ids[self.length - 1] if self.length else b""


@lru_cache(maxsize=16)
def _as_sent(names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return header names as ASGI gives them."""
    return tuple(name.lower().encode("ascii") for name in names)


def session_key(headers: Headers, call: ChatCall, settings: SessionSettings) -> SessionKey | None:
    """Return the first present of the configured headers, then of the configured body fields.

    Raises InvalidSessionId for a header that is not visible ASCII of at most 256 characters.
    """
    for name in _as_sent(settings.headers):
        value = headers.get(name)
        if value is not None:
            if not value:
                raise InvalidSessionId("The session id is empty; send one, or no such header.", param=name.decode())
            if len(value) > LONGEST_KEY or any(not 0x21 <= byte <= 0x7E for byte in value):
                raise InvalidSessionId(param=name.decode())
            return SessionKey(value.decode("ascii"), "header")
    for path in settings.body_fields:
        text = call.text(path)
        if text is not None:
            return SessionKey(text, "body")
    return None


def named_user(headers: Headers, call: ChatCall, settings: SessionSettings) -> str | None:
    """Return the person a request is made for: a user header, else `safety_identifier`, else `user`."""
    for name in _as_sent(settings.user_headers):
        value = headers.get(name)
        if value:
            return value.decode("utf-8", "replace")
    return call.safety_identifier or call.user


class Links:
    """The newest links of keyless sessions: which session an assistant message at the end of which past belongs to."""

    def __init__(self, most: int = LINKS_IN_MEMORY) -> None:
        self._sessions: OrderedDict[bytes, bytes] = OrderedDict()
        self._of: dict[bytes, dict[bytes, None]] = {}  # a session's links: to forget one must not take a look at all
        self._most = most

    def get(self, link: bytes) -> bytes | None:
        """Return the session this link leads to."""
        return self._sessions.get(link)

    def keep(self, link: bytes, session: bytes) -> None:
        """Remember a link; of equal ones the newest session wins."""
        before = self._sessions.get(link)
        if before is not None and before != session:
            self._unlist(link, before)
        self._of.setdefault(session, {})[link] = None
        self._sessions[link] = session
        self._sessions.move_to_end(link)
        if len(self._sessions) > self._most:
            self._unlist(*self._sessions.popitem(last=False))

    def forget(self, session: bytes) -> None:
        """Drop all links to an erased session."""
        for link in self._of.pop(session, ()):
            del self._sessions[link]

    def _unlist(self, link: bytes, session: bytes) -> None:
        links = self._of[session]
        del links[link]
        if not links:
            del self._of[session]


class Sessions:
    """Opens conversations; one for the whole process."""

    def __init__(self, store: Store, cache: HistoryCache, links: Links, parse: ReadMessages, *, shared: bool) -> None:
        self._store, self._cache, self._links, self._parse = store, cache, links, parse
        self._shared = shared  # whether other processes write to the same database
        self._preambles = Preambles()
        self._deltas = Deltas(store, self._preambles, parse, shared=shared)

    async def open(
        self, caller: Caller, call: ChatCall, key: SessionKey | None, missing: str, headers: Headers
    ) -> Conversation:
        """Return the conversation of a request. `missing` is the setting `session.missing`.

        Raises SessionRequired where a key is demanded and none came; BadRequest for messages that are none; for a
        delta also what `Deltas.read` does.
        """
        tells_heads, delta = deltas.tells_heads(headers), deltas.read_delta(headers)
        if delta is not None:
            return await self._open_delta(caller, call, key, delta)
        conversation = await self._open_whole(caller, call, key, missing)
        conversation.tells_heads = tells_heads and conversation.source == "header" and caller.tenant.store == "full"
        return conversation

    async def _open_whole(self, caller: Caller, call: ChatCall, key: SessionKey | None, missing: str) -> Conversation:
        if key is not None:
            return await self._open_keyed(caller, call, key)
        if missing == "reject":
            raise SessionRequired
        return await self._open_keyless(caller, call, in_memory=missing == "memory")

    async def _open_delta(self, caller: Caller, call: ChatCall, key: SessionKey | None, delta: Delta) -> Conversation:
        if key is None or key.source != "header":
            raise SessionRequired("A delta needs its session in a header, e.g. X-Session-Id.")
        if not caller.store or caller.tenant.store != "full":
            raise BadRequest("A delta needs a stored history, and this one is not to be stored.", param=deltas.PARAM)
        state = self._keyed_state(caller, key)
        reading = await self._deltas.read(state, delta, call.slices)
        conversation = await self._adopt(caller, state, reading, key.source)
        conversation.shown = conversation.key = key.value
        conversation.persist = conversation.is_delta = conversation.tells_heads = True
        conversation.turn = conversation.thread.turn = delta.mark(state.secret)
        return conversation

    def _keyed_state(self, caller: Caller, key: SessionKey) -> SessionState:
        tenant, secret = caller.tenant.name, self._store.secret
        return self._state(identity.session_id(secret, tenant, "key", caller.bearer, key.value))

    async def _open_keyed(self, caller: Caller, call: ChatCall, key: SessionKey) -> Conversation:
        state = self._keyed_state(caller, key)
        newest = state.threads[-1] if state.threads else None
        slices = call.resume([*newest.preamble, *newest.slices] if newest else [])
        reading = await read(slices, state.threads, self._preambles, self._parse)
        conversation = await self._adopt(caller, state, reading, key.source)
        conversation.shown = key.value if key.source == "header" else None
        conversation.key = key.value
        conversation.persist = caller.store
        return conversation

    async def _open_keyless(self, caller: Caller, call: ChatCall, *, in_memory: bool) -> Conversation:
        scope = identity.tenant_secret(self._store.secret, caller.tenant.name, caller.bearer, caller.user)
        persist = caller.store and not in_memory
        candidates = list(self._cache.rooted(scope, call.slices))
        reading = await read(call.slices, candidates, self._preambles, self._parse)
        links = _links(scope, reading)
        session = await self._find(reading, links, persist)
        state = self._state(session or secrets.token_bytes(16))
        # From here on an equal request finds this session, also while this one is under way.
        for message, link in zip(reading.messages(), links, strict=True):
            if message.role == "assistant":
                self._links.keep(link, state.id)
        conversation = await self._adopt(caller, state, reading, "match" if session else "new")
        if in_memory:
            conversation.source = "memory"
        conversation.thread.links = links
        conversation.links_secret = scope
        conversation.persist = persist
        conversation.shown = session.hex() if session else None
        if conversation.length:
            self._cache.index_root(scope, state, conversation.thread)
        return conversation

    async def _find(self, reading: Reading, links: Sequence[bytes], persist: bool) -> bytes | None:
        """Return the session with the longest stored path that is a prefix of this request (02-http, Sessions)."""
        places = [p for p, m in enumerate(reading.messages()) if m.role == "assistant"]
        newest_first = [links[p] for p in reversed(places)]
        if not newest_first:
            return None
        near = next(((at, s) for at, x in enumerate(newest_first) if (s := self._links.get(x)) is not None), None)
        if near is not None and (near[0] == 0 or not persist):
            return near[1]
        if persist:
            try:
                stored = await self._store.find_session(newest_first[: near[0]] if near else newest_first)
            except StorageError:
                stored = None
            if stored is not None:
                return stored[1]
            # Meanwhile an equal request may have opened one.
            return next((s for x in newest_first if (s := self._links.get(x)) is not None), None)
        return near[1] if near else None

    def _state(self, session: bytes) -> SessionState:
        state = self._cache.get(session)
        if state is None:
            state = SessionState(session, identity.session_secret(self._store.secret, session))
            self._cache.put(state, 0)
        return state

    async def _adopt(
        self, caller: Caller, state: SessionState, reading: Reading, source: SessionSource
    ) -> Conversation:
        fresh_state = not state.threads
        whole = reading.base is not None and not reading.fresh
        weight, match = state.weight, _match(reading, whole, fresh_state)
        thread = adopt(state, reading)
        length = len(thread.history)
        thread.users += 1  # from here on nothing may grow under this request; its delivery releases it
        self._cache.put(state, weight)
        conversation = Conversation(
            caller=caller,
            state=state,
            thread=thread,
            history=thread.history.with_preamble(reading.preamble),
            preamble=identity.preamble_id(state.secret, (m.digest for m in reading.preamble)),
            source=source,
            match=match,
            shown=None,
            key=None,
            links_secret=None,
            persist=False,
            known=whole,
            length=length,
        )
        if caller.store and (self._shared or (not thread.newest and thread.looked < length)):
            try:
                await self._load(conversation, may_be_new=length <= 1 and not self._shared)
            except BaseException:  # the client has left
                conversation.release()
                raise
        return conversation

    async def _load(self, conversation: Conversation, *, may_be_new: bool) -> None:
        """Learn what the database knows of the thread; others of its session may be at hand, and this one not.

        A thread of one message cannot have been cut, and storing it again changes nothing: no look-up is needed.
        """
        state, thread = conversation.state, conversation.thread
        if may_be_new:
            return
        try:
            loaded = await self._store.load(state.id, thread.ids, thread.stored)
        except StorageError:
            conversation.storage_failed = True
            return
        thread.looked = conversation.length
        state.learn(loaded.summaries, loaded.baselines)
        stored = thread.stored
        while stored < len(thread.ids) and thread.ids[stored] in loaded.known:
            stored += 1
        thread.stored = stored
        found = bool(thread.ids) and thread.ids[-1] in loaded.known
        thread.newest = not (found or conversation.known)
        conversation.known = conversation.known or found


def _match(reading: Reading, whole: bool, fresh_state: bool) -> HistoryMatch:
    if whole:
        return "retry"
    if reading.base is None:
        return "new_root"
    if fresh_state or reading.common == len(reading.base.slices):
        return "extend"
    return "branch"


def _links(secret: bytes, reading: Reading) -> list[bytes]:
    base = reading.base
    known = list(base.links[: reading.common]) if base is not None else []
    messages: list[Message] = list(reading.messages())
    return known + identity.chain(secret, (m.digest for m in messages[len(known) :]), known[-1] if known else None)
