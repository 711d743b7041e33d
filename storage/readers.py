"""A few threads with a reading connection each: one look-up costs one hop to a thread and back; knows no statement."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from transom.storage.driver import Connection, Cursor, Driver, Fault, storage_error
from transom.storage.store import StorageError

T = TypeVar("T")
THREADS = 4


class Readers:
    """Runs look-ups within a deadline."""

    def __init__(self, driver: Driver, *, timeout_s: float) -> None:
        self._driver = driver
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="transom-reader")
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._closed = False

    async def call(self, operation: str, work: Callable[[Cursor], T]) -> T:
        """Run a look-up on some thread; its connection is never touched by a task, so none can leave it dirty.

        Raises StorageError, StorageTimeout once the deadline has passed.
        """
        if self._closed:
            raise StorageError(operation, "closed")
        hop = asyncio.get_running_loop().run_in_executor(self._pool, self._run, operation, work)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await hop
        except TimeoutError:
            raise storage_error(operation, Fault.BUSY) from None

    def close(self) -> None:
        """Wait for what runs, then close every connection; blocks."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _run(self, operation: str, work: Callable[[Cursor], T]) -> T:
        """Do the work on this thread's connection; once more on a new one if the old one turns out to be dead."""
        fresh = getattr(self._mine, "connection", None) is None
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
        connection: Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._driver.connect(read_only=True)
            self._mine.connection = connection
            with self._lock:
                self._open.add(connection)
        return work(connection.cursor())

    def _fault(self, error: Exception) -> Fault:
        """Say what failed, and drop the connection unless it was merely busy."""
        connection: Connection | None = getattr(self._mine, "connection", None)
        fault = self._driver.fault(error, connection)
        if connection is not None and fault is not Fault.BUSY:
            self._mine.connection = None
            with self._lock:
                self._open.discard(connection)
            connection.close()
        return fault
