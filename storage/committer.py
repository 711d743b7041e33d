"""The one writer: a thread that commits batches in groups; knows the order of statements, not what they say.

Requests hand their rows over and go on. Whatever has come in while a group was being committed is the next group, so
under load one commit (and one fsync) is shared by many turns. A group that fails is committed again batch by batch:
a bad batch fails alone. Longer work (erasure, leases) runs on the same thread in a transaction of its own, so that on
SQLite there is never a second writer.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from transom.storage.driver import Connection, Cursor, Driver, Fault, storage_error
from transom.storage.rows import Batch
from transom.storage.scrub import scrubbed
from transom.storage.statements import write_statements
from transom.storage.store import Observer, QueueFull, StorageError

T = TypeVar("T")
GROUP_BATCHES = 256
QUEUE_BATCHES = 10_000
QUEUE_BYTES = 256 * 1024 * 1024
# Where groups are usually of more than one batch, an idle writer lets some more come before it begins: fewer commits,
# and fewer turns of two threads taking the interpreter from each other (as PostgreSQL's commit_delay does).
CROWDED = 1.5
GATHER_S = 0.002
USUAL_OF = 16
CONFLICT_TRIES = 3  # more, after a conflict with another process: one of the two was let through


@dataclass(slots=True, eq=False)
class _Entry:
    """Something to be done, and who waits for it."""

    operation: str
    work: Batch | Callable[[Cursor], Any]
    size: int
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    queued: float
    transaction: bool = True
    result: Any = None


class Committer:
    """Owns the writing connection and the thread that uses it."""

    def __init__(self, driver: Driver, observer: Observer, *, timeout_s: float) -> None:
        self._driver = driver
        self._observer = observer
        self._timeout_s = timeout_s
        self._writes = write_statements(driver.dialect)
        self._queue: deque[_Entry] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()  # rung for a thread that waits, and for no other
        self._idle = False
        self._usual = 1.0  # batches of a group, lately
        self._lock = threading.Lock()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closed = False
        self._busy_until = 0.0
        self._mistake: Exception | None = None
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="transom-committer", daemon=True)
        self._thread.start()

    def write(self, batch: Batch) -> "asyncio.Future[None]":
        """Queue rows to be committed together; the future raises StorageError if they are not."""
        return self._submit("write", batch, batch.size, True)

    def run(self, operation: str, work: Callable[[Cursor], T], *, transaction: bool = True) -> "asyncio.Future[T]":
        """Queue longer work, which gets a cursor inside a write transaction (or outside of any)."""
        return cast("asyncio.Future[T]", self._submit(operation, work, 0, transaction))

    def close(self) -> None:
        """Commit what is queued, then end the thread and its connection; blocks."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._ring()
        self._thread.join()

    def _submit(
        self, operation: str, work: Batch | Callable[[Cursor], Any], size: int, transaction: bool
    ) -> "asyncio.Future[Any]":
        """Put an entry into the queue, or refuse at once."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        entry = _Entry(operation, work, size, future, loop, monotonic(), transaction)
        refusal: StorageError | None = None
        with self._lock:
            if self._closed:
                refusal = StorageError(operation, "closed")
            elif self._waiting >= QUEUE_BATCHES or self._waiting_bytes + size > max(QUEUE_BYTES, size):
                refusal = QueueFull(operation, "too much waits to be written")
            else:
                self._waiting += 1
                self._waiting_bytes += size
                self._queue.append(entry)
                self._ring()
        if refusal is not None:
            self._settle([(entry, refusal)])
        return future

    def _ring(self) -> None:
        if self._idle:
            self._idle = False
            self._bell.put(None)

    def _serve(self) -> None:
        """Work until closed."""
        while group := self._take():
            self._usual += (len(group) - self._usual) / USUAL_OF
            self._finish(group, self._outcomes(group))
        if self._connection is not None:
            self._connection.close()

    def _take(self) -> list[_Entry]:
        """Wait for entries; return those to do next, none once closed."""
        while True:
            with self._lock:
                group = self._next()
                if group or self._closed:
                    return group
                self._idle = True
            self._bell.get()
            if self._usual >= CROWDED:
                sleep(GATHER_S)

    def _next(self) -> list[_Entry]:
        """Remove from the queue what is done in one transaction: batches together, longer work alone."""
        group: list[_Entry] = []
        queue = self._queue
        while queue and len(group) < GROUP_BATCHES:
            if group and not (isinstance(queue[0].work, Batch) and isinstance(group[0].work, Batch)):
                break
            group.append(queue.popleft())
        return group

    def _finish(self, group: Sequence[_Entry], outcomes: Sequence[StorageError | None]) -> None:
        """Tell everybody in the group, with one wake-up per event loop."""
        with self._lock:
            self._waiting -= len(group)
            self._waiting_bytes -= sum(entry.size for entry in group)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Entry, StorageError | None]]] = {}
        for entry, outcome in zip(group, outcomes, strict=True):
            by_loop.setdefault(entry.loop, []).append((entry, outcome))
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._settle, settled)
            except RuntimeError:  # the loop is closed, so nobody waits any more
                continue

    def _settle(self, settled: Sequence[tuple[_Entry, StorageError | None]]) -> None:
        """Resolve futures, on their own loop."""
        now = monotonic()
        for entry, outcome in settled:
            self._observer.storage(entry.operation, now - entry.queued)
            if outcome is not None:
                self._observer.storage_error(entry.operation)
            if entry.future.done():
                continue
            if outcome is None:
                entry.future.set_result(entry.result)
            else:
                entry.future.set_exception(outcome)
                entry.future.exception()  # whoever does not wait is not told again by the event loop

    def _outcomes(self, group: Sequence[_Entry]) -> list[StorageError | None]:
        """Commit the group, or else each batch alone; return what became of each."""
        if all(entry.queued + self._timeout_s < self._busy_until for entry in group):
            # the lock was held past their deadline while an earlier group waited for it
            return [storage_error(entry.operation, Fault.BUSY) for entry in group]
        fault = self._attempts(group)
        if fault is None:
            return [None] * len(group)
        if fault is Fault.BUSY:
            self._busy_until = monotonic()
        elif len(group) > 1 and fault is not Fault.LOST:
            return [outcome for entry in group for outcome in self._outcomes([entry])]
        elif fault is Fault.VALUE and isinstance(group[0].work, Batch):
            group[0].work = scrubbed(group[0].work)
            fault = self._attempt(group)
        return [self._error(entry, fault) if fault else None for entry in group]

    def _error(self, entry: _Entry, fault: Fault) -> StorageError:
        """Return what to tell; a mistake in the calling code stays visible behind it, a driver's words do not."""
        error = storage_error(entry.operation, fault)
        error.__cause__ = self._mistake
        return error

    def _attempts(self, group: Sequence[_Entry]) -> Fault | None:
        """Commit the group, again where that may help; rows that were committed after all stay as they are."""
        more = {Fault.LOST: int(self._connection is not None), Fault.CONFLICT: CONFLICT_TRIES}
        while (fault := self._attempt(group)) is not None and more.get(fault, 0):
            more[fault] -= 1
        return fault

    def _attempt(self, group: Sequence[_Entry]) -> Fault | None:
        """Commit the group in one transaction; return why that failed."""
        try:
            self._driver.check()
            connection = self._connection = self._connection or self._driver.connect(read_only=False)
            if isinstance(group[0].work, Batch):
                self._write(connection, [cast("Batch", entry.work) for entry in group])
            else:
                group[0].result = self._run(connection, group[0])
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread must go on
            fault = self._driver.fault(error, self._connection)
            self._mistake = None if isinstance(error, self._driver.errors) else error
            self._recover(fault)
            return fault
        return None

    def _write(self, connection: Connection, batches: list[Batch]) -> None:
        """Execute each statement once for the rows of all batches."""
        with self._driver.pipeline(connection):
            cursor = connection.cursor()
            cursor.execute(self._driver.begin)
            for write in self._writes:
                rows = list(chain.from_iterable(map(write.of, batches)))
                if len(batches) > 1 and write.order is not None:
                    rows.sort(key=write.order)
                if len(rows) == 1:
                    cursor.execute(write.sql, write.bind(rows)[0])
                elif rows:
                    cursor.executemany(write.sql, write.bind(rows))
            cursor.execute("COMMIT")

    def _run(self, connection: Connection, entry: _Entry) -> Any:
        """Do longer work."""
        work = cast("Callable[[Cursor], Any]", entry.work)
        cursor = connection.cursor()
        if not entry.transaction:
            return work(cursor)
        cursor.execute(self._driver.begin)
        for statement in self._driver.unhurried:
            cursor.execute(statement)
        result = work(cursor)
        cursor.execute("COMMIT")
        return result

    def _recover(self, fault: Fault) -> None:
        """Make the connection fit for the next transaction, or drop it."""
        connection = self._connection
        if connection is None:
            return
        with suppress(*self._driver.errors):
            if fault not in (Fault.LOST, Fault.IO, Fault.CORRUPT, Fault.REPLACED):
                self._driver.rollback(connection)
                return
        self._connection = None
        with suppress(*self._driver.errors):
            connection.close()
