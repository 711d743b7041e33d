"""Counters and histograms for what happens on every request: added up here, handed to the client library now and then.

The library locks and checks each single increment, which at thirty of them a request costs more than its look-ups.
Nothing is lost: a scrape settles first, and each process settles every second for the scrapes of its siblings. For one
thread only, the event loop's.
"""

from bisect import bisect_left
from collections import Counter as Count

from prometheus_client import Counter, Histogram

MOST_PENDING = 1_000  # observations of one series that are held, should nobody settle

Labels = tuple[str, ...]


class Tally:
    """A counter."""

    __slots__ = ("_counter", "_pending")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._pending: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count `by` more under these label values."""
        self._pending[labels] = self._pending.get(labels, 0) + by

    def settle(self) -> None:
        """Hand over what was counted."""
        pending, self._pending = self._pending, {}
        for labels, amount in pending.items():
            self._counter.labels(*labels).inc(amount)


class Spread:
    """A histogram with these upper bounds, ascending."""

    __slots__ = ("_bounds", "_histogram", "_pending")

    def __init__(self, histogram: Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._pending: dict[Labels, list[float]] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Record a value under these label values."""
        values = self._pending.get(labels)
        if values is None:
            values = self._pending[labels] = []
        values.append(value)
        if len(values) >= MOST_PENDING:
            self.settle()

    def settle(self) -> None:
        """Hand over what was recorded."""
        pending, self._pending = self._pending, {}
        for labels, values in pending.items():
            child = self._histogram.labels(*labels)
            # The library has no call for many observations: these are the two values that one of them moves.
            child._sum.inc(sum(values))  # noqa: SLF001
            for bucket, number in Count(bisect_left(self._bounds, value) for value in values).items():
                child._buckets[bucket].inc(number)  # noqa: SLF001
