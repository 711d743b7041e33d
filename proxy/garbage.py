"""When the interpreter looks for reference cycles in a process that remembers much; it knows no requests.

Nearly all that a request makes dies by its reference count, and what outlives it (histories at hand) holds no cycles.
The interpreter's own rhythm looks at every such object again and again, for 100 ms at a time, and finds nothing. Here
the young ones are looked at once, a few at a time, and then set aside with `gc.freeze`. Cycles that were still in use
at that moment, such as an error with its traceback, wait for a look at everything. It takes 50 ms and more, during
which nobody is served, so it is taken where nobody is: now and then, and soon when the process has come to need
noticeably more memory, which may be theirs. Only a process that finds no such moment is held up for it.
"""

import ctypes
import gc
import resource
from collections.abc import Callable

YOUNG = 8_000  # objects that may have been made since the last look
QUIET_S = 1.0  # how long nobody has been served: who comes after that is not one of many
EVERYTHING_S = 600.0  # how often everything is looked at, if the process has a quiet moment
AT_LATEST_S = 6 * 3_600.0  # and if it never has
GROWN = 1.5  # times the memory at the last look, which may be what such cycles hold
GROWN_S = 60.0  # how long a process that has grown so much waits for a quiet moment


def _peak() -> int:
    """Return the most memory this process has had, in units of the system's."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _trim() -> None:
    """Give free memory back, where the C library knows how to: glibc keeps what stands between other things."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Garbage:
    """Replaces the interpreter's rhythm. `now` is any clock in seconds, `memory` in any unit."""

    def __init__(self, memory: Callable[[], int] = _peak) -> None:
        self._looked: float | None = None
        self._memory, self._had = memory, 0
        self._busy_at = self._grown_at = float("inf")

    def begin(self, now: float) -> None:
        """Take over; what the start has made stays for good, and what it has freed goes back to the system."""
        gc.disable()
        self._busy_at = now
        self._everything(now)

    def tick(self, now: float, *, busy: bool) -> None:
        """Look at what is young, or at everything if it is time; call it several times a second.

        `busy` tells whether anybody has been served since the last call.
        """
        if self._looked is None:
            return
        if busy:
            self._busy_at = now
        if self._memory() > GROWN * self._had:
            self._grown_at = min(self._grown_at, now)
        if self._due(now):
            gc.unfreeze()
            self._everything(now)
        elif gc.get_count()[0] >= YOUNG:
            gc.collect(0)
            gc.freeze()

    def _due(self, now: float) -> bool:
        """Tell whether everything is to be looked at."""
        assert self._looked is not None
        since = now - self._looked
        if now - self._busy_at >= QUIET_S:
            return since >= EVERYTHING_S or self._grown_at <= now
        return since >= AT_LATEST_S or now - self._grown_at >= GROWN_S

    def end(self) -> None:
        """Give back what was taken over."""
        if self._looked is not None:
            self._looked = None
            gc.unfreeze()
            gc.enable()

    def _everything(self, now: float) -> None:
        gc.collect()
        gc.freeze()
        _trim()
        self._looked, self._had, self._grown_at = now, self._memory(), float("inf")
