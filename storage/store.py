"""The port: what the proxy asks of storage and how it fails; knows no database.

StorageError                 any failed call; the text names the operation and a cause of a fixed list
├── StorageTimeout           not answered within the deadline, or locked beyond it
├── QueueFull                more is waiting to be written than may be
├── MissingParent            a row refers to a session or message that is not stored (never was, or is erased)
└── CannotOpen               the database can't be used at all: refuse to start
    ├── LockedByProcess      another process has it open
    ├── NotADatabase         the file is something else; it is left as it is
    ├── Corrupt              the file is damaged
    └── SchemaTooNew         made by a newer version that says this one can't read it
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from transom.storage.rows import Batch, FactorRow, Loaded, MessageRow, Place, StepRow


class Observer(Protocol):
    """Is told of operations, on the event loop that asked for them."""

    def storage(self, operation: str, seconds: float) -> None:
        """Take note of how long one took, waiting included; what the admin API reads is not among them."""

    def storage_error(self, operation: str) -> None:
        """Take note of one that failed."""


class NoObserver:
    """Takes no notice of anything."""

    def storage(self, operation: str, seconds: float) -> None:
        """Do nothing."""

    def storage_error(self, operation: str) -> None:
        """Do nothing."""


class StorageError(Exception):
    """A storage call failed. Never holds SQL, a path or a stored value."""

    def __init__(self, operation: str, cause: str = "failed") -> None:
        super().__init__(f"storage: {operation}: {cause}")
        self.operation = operation
        self.cause = cause


class StorageTimeout(StorageError):
    """The deadline passed, or somebody else held a lock for as long."""


class QueueFull(StorageError):
    """Writes come faster than they can be committed."""


class MissingParent(StorageError):
    """A row refers to a session or message that is not stored."""


class CannotOpen(StorageError):
    """The database can't be used; starting without it makes no sense."""


class LockedByProcess(CannotOpen):
    """Another process holds the database's lock file."""


class NotADatabase(CannotOpen):
    """The file holds something else; nothing was changed."""


class Corrupt(CannotOpen):
    """The file is damaged."""


class SchemaTooNew(CannotOpen):
    """The schema was made by a version that says this one can't read it."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions to list; None means any. Times are seconds since the epoch and bound the last use."""

    tenant: str | None = None
    user_hash: bytes | None = None
    key_hash: bytes | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Listed sessions, newest first, ready for JSON; `after` asks for the next page, None on the last."""

    sessions: list[dict[str, Any]]
    after: str | None


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What a retention run did.

    `waits` is true where it would have erased more than half of 100 or more sessions and so erased nothing.
    """

    sessions: int
    due: int
    erased: list[bytes]
    waits: bool


class Store(Protocol):
    """Stored conversations. Every call may raise StorageError.

    Look-ups end within the configured deadline; lists, exports, erasure and retention take the time they need.
    """

    @property
    def secret(self) -> bytes:
        """Return the database's 32 random bytes, from which all ids are derived."""

    async def load(self, session: bytes, ids: Sequence[bytes], stored: int = 0) -> Loaded:
        """Return what is stored of a thread, given the ids of its messages.

        Of the first `stored` it is known that they are: all but a few of them are not looked for, nor given back as
        known, and only what was made of them meanwhile is told.
        """

    async def step(self, session: bytes, head: bytes, preamble: bytes, policy: bytes) -> StepRow | None:
        """Return the step recorded for this very request, if there is one."""

    async def find_session(self, links: Sequence[bytes]) -> tuple[bytes, bytes] | None:
        """Return (link, session) of the first link that is stored, of its newest session; links newest first."""

    async def thread(self, session: bytes, head: bytes, after: bytes = b"") -> list[MessageRow]:
        """Return the messages from the root to `head`, empty if `head` is not stored in this session.

        Where `after` is one of them, only those behind it.
        """

    async def place(self, session: bytes, parent: bytes | None, head: bytes) -> Place:
        """Return what is stored where a turn that ends in `head` is to be added after `parent`, or as the first.

        A turn that was never answered, or not to the end, does not count as following: it is sent again, or given up.
        """

    async def factors(self) -> dict[str, FactorRow]:
        """Return the stored token ratios by model."""

    def write(self, batch: Batch) -> "asyncio.Future[None]":
        """Hand rows to the writer; the future resolves once they are committed, in the order of the calls.

        What is stored already is left as it is (the first writer wins), but for requests, factors and a session's
        `used_at`. Call it from a running event loop; any thread's will do.
        """

    async def lease(self, session: bytes, root: bytes, holder: str, seconds: float) -> bool:
        """Take or prolong the thread's lease by the database's clock; false if another holder has it."""

    async def release(self, session: bytes, root: bytes, holder: str) -> None:
        """Give the lease back, if `holder` still has it."""

    async def sessions(self, wanted: SessionFilter, limit: int, after: str | None = None) -> SessionPage:
        """List sessions, newest first; `after` is a page's cursor or a session's hex id (LookupError: unknown)."""

    async def session(self, session: bytes) -> dict[str, Any] | None:
        """Return one session with its threads, requests and summaries, ready for JSON; no message text."""

    async def requests(self, any_id: str) -> list[dict[str, Any]]:
        """Return the requests with this request or completion id, newest first, ready for JSON."""

    def export(self, session: bytes) -> AsyncIterator[bytes]:
        """Yield a session as JSON lines (each with its newline), the messages' own bytes in them."""

    async def delete_session(self, session: bytes) -> bool:
        """Erase a session and all that belongs to it, from the file's bytes too; false if it is not there."""

    async def delete_user(self, tenant: str, user: bytes) -> list[bytes]:
        """Erase the sessions of a tenant's user, given by hash, and return their ids."""

    async def retain(
        self, now: float, days: float | None, tenants: Mapping[str, float | None], *, force: bool = False
    ) -> RetentionResult:
        """Erase what was unused for longer than `days` (None: never), or than a tenant's own number of days."""

    async def stats(self) -> dict[str, int]:
        """Return the number of rows per table and the database's size in `bytes`."""

    async def ping(self) -> None:
        """Raise StorageError unless the database answers and is still the one that was opened."""

    async def close(self) -> None:
        """Commit what was handed over, then let go of every thread, connection and lock."""
