"""A few threads with a reading connection each: one look-up costs one hop to a thread and back; knows no statement."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar, cast

from transom.storage.driver import Connection, Cursor, Driver, Fault, storage_error
from transom.storage.store import Observer, StorageError

T = TypeVar("T")
THREADS = 4


@dataclass(slots=True, eq=False)
class _Asked:
    """A look-up, and who waits for it."""

    operation: str
    work: Callable[[Cursor], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Readers:
    """Runs look-ups within a deadline."""

    def __init__(self, driver: Driver, observer: Observer, *, timeout_s: float) -> None:
        self._driver = driver
        self._observer = observer
        self._timeout_s = timeout_s
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()  # an executor's own hop costs half as much again
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"transom-reader-{number}", daemon=True)
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    async def call(self, operation: str, work: Callable[[Cursor], T]) -> T:
        """Run a look-up on some thread; its connection is never touched by a task, so none can leave it dirty.

        Raises StorageError, StorageTimeout once the deadline has passed.
        """
        if self._closed:
            raise StorageError(operation, "closed")
        loop = asyncio.get_running_loop()
        asked = _Asked(operation, work, loop.create_future(), loop)
        self._queue.put(asked)
        started = monotonic()
        try:
            async with asyncio.timeout(self._timeout_s):
                return cast("T", await asked.future)
        except TimeoutError:
            self._observer.storage_error(operation)
            raise storage_error(operation, Fault.BUSY) from None
        except StorageError:
            self._observer.storage_error(operation)
            raise
        finally:
            self._observer.storage(operation, monotonic() - started)

    def close(self) -> None:
        """Wait for what was asked, then close every connection; blocks."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        """Answer until closed, on this thread's own connection."""
        reader = _Reader(self._driver)
        while (asked := self._queue.get()) is not None:
            if asked.future.cancelled():  # its deadline has passed, or its request is gone
                continue
            answer: Any = None
            error: Exception | None = None
            try:
                answer = reader.run(asked.operation, asked.work)
            except Exception as raised:  # noqa: BLE001 - whatever it is, the thread must go on
                error = raised
            try:
                asked.loop.call_soon_threadsafe(_settle, asked.future, answer, error)
            except RuntimeError:  # the loop is closed, so nobody waits any more
                continue
        reader.close()


class _Reader:
    """One connection, and what becomes of it when a look-up fails."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, operation: str, work: Callable[[Cursor], T]) -> T:
        """Do the work; once more on a new connection if the old one turns out to be dead."""
        fresh = self._connection is None
        try:
            return self._attempt(work)
        except self._driver.errors as error:
            fault = self._fault(error)
        if fault is Fault.LOST and not fresh:
            try:
                return self._attempt(work)
            except self._driver.errors as error:
                fault = self._fault(error)
        raise storage_error(operation, fault)

    def _attempt(self, work: Callable[[Cursor], T]) -> T:
        """Do the work once."""
        if self._connection is None:
            self._connection = self._driver.connect(read_only=True)
        return work(self._connection.cursor())

    def _fault(self, error: Exception) -> Fault:
        """Say what failed, and drop the connection unless it was merely busy."""
        fault = self._driver.fault(error, self._connection)
        if fault is not Fault.BUSY:
            self.close()
        return fault


def _settle(future: "asyncio.Future[Any]", answer: Any, error: Exception | None) -> None:
    """Resolve a future, on its own loop."""
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)
