"""Know the messages of earlier requests again by their bytes, so that only new ones are parsed, counted and hashed.

A thread is one chain of messages under a session: its raw slices as the client sent them, the messages read from them,
and their content-addressed ids. A request that goes on where a thread ended extends it in place; one that went another
way (an edit, a regenerated answer) forks it. It knows no policy and opens no socket; reading new slices is handed in.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.view import WHOLE, Recalled, View
from transom.storage.identity import chain
from transom.storage.rows import BaselineRow, SummaryRow

THREADS_PER_SESSION = 8
LONGEST_PREAMBLE = 8  # messages that are looked at to find how a keyless thread begins
STEPS_PER_SESSION = 32
# Bytes of memory beside the payloads, which are held as slice and as payload; measured with tracemalloc.
MESSAGE_OVERHEAD = 900
THREAD_OVERHEAD = 3_500
MANY = 2_000  # messages that are put in order within some milliseconds

ReadMessages = Callable[[Sequence[bytes], int], Awaitable[list[Message]]]
"""Read slices into messages; the number says at which place of the request the first one stands."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole answer to a thread's newest request, for a client that sends deltas: it will not send it back."""

    choices: Mapping[bytes, Message]  # by id
    preamble: tuple[Message, ...]  # of the request

    @property
    def size(self) -> int:
        """Bytes of the choices."""
        return sum(len(m.payload) for m in self.choices.values())


@dataclass(slots=True, eq=False)
class Thread:
    """One chain of messages, known from the requests that sent it."""

    history: History = field(default_factory=lambda: History(()))
    slices: list[bytes] = field(default_factory=list)
    preamble: Sequence[bytes] = ()  # the newest request's preamble, raw
    ids: list[bytes] = field(default_factory=list)
    links: Sequence[bytes] = ()  # keyless sessions only: see storage.identity.link
    stored: int = 0  # how many leading messages are stored, or handed to the writer
    looked: int = 0  # how many leading messages the database was asked for
    newest: bool = False  # whether nothing that is stored goes on from where it ends: then nobody need ask
    users: int = 0  # requests under way that hold positions of this thread: it must not grow under them
    sent: "Sent | None" = None
    rehearsed: View = WHOLE  # what an audit, or the control group, would have sent
    warned: bool = False  # whether its owner was told that no cut makes its limits hold
    recalled: tuple[bytes, Recalled | None] | None = None  # the newest user message's id, and what came back for it
    makeshift: "Makeshift | None" = None
    answered: Answered | None = None
    turn: bytes | None = None  # the mark of its newest turn, if that was sent as a delta and named by its client
    size: int = field(init=False)  # bytes of the slices

    def __post_init__(self) -> None:
        """Measure what it begins with."""
        self.size = sum(map(len, self.slices))

    def common(self, slices: Sequence[bytes]) -> int:
        """Count the leading slices that are equal, byte for byte."""
        mine = self.slices
        if len(mine) <= len(slices) and slices[: len(mine)] == mine:
            return len(mine)
        for place, (a, b) in enumerate(zip(mine, slices, strict=False)):
            if a != b:
                return place
        return min(len(mine), len(slices))

    def fork(self, length: int) -> "Thread":
        """Return a thread of its own that shares the first `length` messages."""
        return Thread(
            History((), self.history.messages[:length]),
            self.slices[:length],
            (),
            self.ids[:length],
            self.links[:length],
            min(self.stored, length),
            length if self.newest else min(self.looked, length),
        )

    def extend(self, slices: Sequence[bytes], messages: Sequence[Message]) -> None:
        """Append messages and the slices they were read from."""
        self.slices.extend(slices)
        self.size += sum(map(len, slices))
        self.history.extend(messages)

    def identify(self, secret: bytes) -> None:
        """Give every message that has none its id, chained to its parent's."""
        fresh = self.history.messages[len(self.ids) :]
        self.ids.extend(chain(secret, (m.digest for m in fresh), self.ids[-1] if self.ids else None))

    @property
    def weight(self) -> int:
        """Bytes of memory, roughly."""
        size = self.size + (self.answered.size if self.answered is not None else 0)
        return THREAD_OVERHEAD + size * 2 + MESSAGE_OVERHEAD * len(self.slices)


@dataclass(frozen=True, slots=True)
class Makeshift:
    """The cut that stands in for a summary while none comes about, and whose policy's it is (`budgets.cut_hash`)."""

    policy: bytes
    view: View


@dataclass(slots=True)
class Breaker:
    """How a thread's summaries fared lately; open from `opened_at` (seconds of a monotonic clock) on."""

    failures: int = 0
    opened_at: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What the last request of a thread sent: to tell how much of the next one a prompt cache can reuse."""

    preamble: bytes
    view: View
    length: int
    tokens: int


@dataclass(slots=True, eq=False)
class SessionState:
    """What is remembered of one session in memory: bounded, and nothing that the database does not know better.

    There may be 100,000 of them at hand, most at rest: what is mostly empty is an empty tuple, or a dict, which costs
    the garbage collector nothing.
    """

    id: bytes
    secret: bytes
    threads: list[Thread] = field(default_factory=list)  # the most recently used last
    known_preambles: dict[bytes, None] = field(default_factory=dict)  # hashes that are stored, or handed to the writer
    baselines: Sequence[BaselineRow] = ()  # the deepest first
    summaries: dict[bytes, SummaryRow] = field(default_factory=dict)
    steps: dict[tuple[bytes, bytes, bytes], bytes] = field(default_factory=dict)  # the newest last
    erased: bool = False  # whether somebody wanted it gone: requests that are under way leave nothing behind then
    failing: bool = False  # whether the newest write of this session failed
    written: bool = False  # whether the session's own row is stored, or handed to the writer
    roots: frozenset[tuple[bytes, int]] = frozenset()
    # Summaries that are not in the database yet, each with its baseline: what is stored may refer to them.
    unstored: dict[bytes, tuple[SummaryRow, BaselineRow]] = field(default_factory=dict)
    breakers: dict[bytes, "Breaker"] = field(default_factory=dict)  # by the thread's first message
    flush: Callable[[], None] | None = None  # writes the rows of a request that still wait for its answer's
    weight: int = 0

    def remember_baseline(self, row: BaselineRow) -> None:
        """Keep a baseline, deepest first; of equals the first writer wins."""
        key = (row.at, row.kind, row.policy, row.summary)
        if not any((b.at, b.kind, b.policy, b.summary) == key for b in self.baselines):
            self.baselines = sorted((*self.baselines, row), key=lambda b: -b.position)

    def learn(self, summaries: Mapping[bytes, SummaryRow], baselines: Iterable[BaselineRow]) -> None:
        """Take over what the database knows of a thread."""
        self.summaries.update(summaries)
        for row in baselines:
            self.remember_baseline(row)

    def remember_step(self, key: tuple[bytes, bytes, bytes], recipe: bytes) -> None:
        """Keep the newest steps for retries."""
        self.steps.pop(key, None)
        self.steps[key] = recipe
        while len(self.steps) > STEPS_PER_SESSION:
            del self.steps[next(iter(self.steps))]


class Preambles:
    """System messages seen lately, by their bytes: the same one opens most requests of an application."""

    def __init__(self, most: int = 128, most_bytes: int = 4 * 1024 * 1024) -> None:
        self._known: OrderedDict[bytes, Message] = OrderedDict()
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0

    def get(self, raw: bytes) -> Message | None:
        """Return the message these bytes were read as, if they were."""
        return self._known.get(raw)

    def keep(self, raw: bytes, message: Message) -> None:
        """Remember a system message; the ones kept longest go first."""
        if raw in self._known:
            self._known.move_to_end(raw)
            return
        self._known[raw] = message
        self._bytes += len(raw)
        while len(self._known) > self._most or self._bytes > self._most_bytes:
            oldest, _ = self._known.popitem(last=False)
            self._bytes -= len(oldest)


@dataclass(frozen=True, slots=True)
class Reading:
    """A request's messages, read: the preamble, and the rest as what a known thread holds plus what is new."""

    preamble: tuple[Message, ...]
    raw_preamble: Sequence[bytes]
    base: Thread | None
    common: int
    fresh: list[Message]
    slices: Sequence[bytes]  # what the fresh ones were read from
    begun: History | None = None  # the fresh ones in order, where no known thread holds any of the others

    def messages(self) -> Iterator[Message]:
        """Yield all messages after the preamble."""
        if self.base is not None:
            yield from self.base.history.messages[: self.common]
        yield from self.fresh


async def read(
    slices: Sequence[bytes], threads: Iterable[Thread], preambles: Preambles, parse: ReadMessages
) -> Reading:
    """Read a request's slices, taking from known threads what did not change."""
    threads = list(threads)
    roots = {t.slices[0] for t in threads if t.slices}
    preamble: list[Message] = []
    first: list[Message] = []
    for place, raw in enumerate(slices):
        if raw in roots:
            break
        message = preambles.get(raw) or (await parse(slices[place : place + 1], place))[0]
        if not message.is_system:
            first.append(message)
            break
        preambles.keep(raw, message)
        preamble.append(message)
    rest = slices[len(preamble) :]
    base, common = None, 0
    for thread in reversed(threads):
        shared = thread.common(rest)
        if shared > common:
            base, common = thread, shared
    start = common or len(first)
    fresh = await parse(rest[start:], len(preamble) + start) if len(rest) > start else []
    opening = tuple(slices[: len(preamble)])
    if base is not None:
        return Reading(tuple(preamble), opening, base, common, fresh, rest[common:])
    fresh = first + fresh
    return Reading(tuple(preamble), opening, None, 0, fresh, rest, await _begun(fresh))


async def _begun(messages: list[Message]) -> History:
    """Return a new thread's history; that of very many messages is made where the event loop can go on."""
    if len(messages) <= MANY:
        return History((), messages)
    return await asyncio.to_thread(History, (), messages)


def adopt(state: SessionState, reading: Reading) -> Thread:
    """Return the session's thread for a request: the known one extended, a fork of it, or a new one."""
    base = reading.base
    if base is None:
        assert reading.begun is not None
        thread = Thread(reading.begun, list(reading.slices))
    elif base not in state.threads:
        thread = base.fork(reading.common)
        thread.ids.clear()  # another session's ids mean nothing here
        thread.stored = thread.looked = 0
    elif reading.common == len(base.slices) and (not reading.fresh or not base.users):
        thread = base
        state.threads.remove(base)
    else:
        thread = base.fork(reading.common)
        base.newest = base.newest and reading.common < len(base.slices)
    if base is not None and reading.fresh:
        base.answered = None  # the thread has gone on, by that answer or another
    thread.preamble = reading.raw_preamble
    if base is not None:
        thread.extend(reading.slices, reading.fresh)
    thread.identify(state.secret)
    state.threads.append(thread)
    del state.threads[:-THREADS_PER_SESSION]
    state.weight = sum(t.weight for t in state.threads)
    return thread


class HistoryCache:
    """The sessions used most recently, bounded by bytes; also finds keyless ones by how they begin."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._states: OrderedDict[bytes, SessionState] = OrderedDict()
        self._roots: dict[tuple[bytes, int], OrderedDict[bytes, None]] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._states)

    @property
    def weight(self) -> int:
        """Bytes held, roughly."""
        return self._weight

    def get(self, session: bytes) -> SessionState | None:
        """Return what is remembered of a session."""
        state = self._states.get(session)
        if state is not None:
            self._states.move_to_end(session)
        return state

    def put(self, state: SessionState, before: int) -> None:
        """Keep a session whose weight was `before` the last time, and forget the ones used longest ago."""
        self._weight += state.weight - (before if state.id in self._states else 0)
        self._states[state.id] = state
        self._states.move_to_end(state.id)
        while self._weight > self._max_bytes and len(self._states) > 1:
            self.forget(next(iter(self._states)))

    def erase(self, session: bytes) -> None:
        """Drop a session that is erased on somebody's wish."""
        state = self._states.get(session)
        if state is not None:
            state.erased = True
        self.forget(session)

    def forget(self, session: bytes) -> None:
        """Drop a session from memory (it was unused for long, or it is the oldest)."""
        state = self._states.pop(session, None)
        if state is None:
            return
        self._weight -= state.weight
        for root in state.roots:
            known = self._roots.get(root)
            if known is not None:
                known.pop(session, None)
                if not known:
                    del self._roots[root]

    def answered(self, state: SessionState, thread: Thread, length: int, answer: Answered) -> None:
        """Keep a whole answer beside the thread that was so long, unless that has gone on, or was forgotten."""
        gone_on = any(len(t.ids) > length and (t is thread or t.ids[length] in answer.choices) for t in state.threads)
        if gone_on or self._states.get(state.id) is not state:
            return
        before, thread.answered = state.weight, answer
        state.weight = sum(t.weight for t in state.threads)
        self.put(state, before)

    def index_root(self, scope: bytes, state: SessionState, thread: Thread) -> None:
        """Make a keyless session findable by its first message."""
        root = (scope, hash(thread.slices[0]))
        state.roots |= {root}
        known = self._roots.setdefault(root, OrderedDict())
        known[state.id] = None
        known.move_to_end(state.id)

    def rooted(self, scope: bytes, slices: Sequence[bytes], most: int = 32) -> Iterator[Thread]:
        """Yield threads of keyless sessions that may begin as this request does, the newest sessions last."""
        for raw in slices[:LONGEST_PREAMBLE]:
            for session in list(self._roots.get((scope, hash(raw)), ()))[-most:]:
                state = self._states.get(session)
                if state is not None:
                    yield from (t for t in state.threads if t.slices and t.slices[0] == raw)
