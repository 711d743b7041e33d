from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from transom.proxy import tallies
from transom.proxy.tallies import Spread, Tally

BOUNDS = (0.125, 1.0, 10.0)


def shown(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


VALUES = (0.0, 0.0625, 0.125, 0.5, 1.0, 10.0, 10.5, 99.0)  # and bounds: their sums are exact in whatever order


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(VALUES))))
def test_a_scrape_cannot_tell_tallied_values_from_single_ones(values: list[tuple[str, float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread(Histogram("x", "X.", ["l"], registry=ours, buckets=BOUNDS), BOUNDS)
    tally = Tally(Counter("n", "N.", ["l"], registry=ours))
    histogram = Histogram("x", "X.", ["l"], registry=theirs, buckets=BOUNDS)
    counter = Counter("n", "N.", ["l"], registry=theirs)
    for label, value in values:
        spread.observe(value, label)
        tally.add(label, by=value)
        histogram.labels(label).observe(value)
        counter.labels(label).inc(value)
    for tallied in (spread, tally):
        tallied.settle()
        tallied.settle()
    assert sorted(shown(ours)) == sorted(shown(theirs))


def test_what_nobody_settles_is_bounded() -> None:
    registry = CollectorRegistry()
    spread = Spread(Histogram("x", "X.", ["l"], registry=registry, buckets=BOUNDS), BOUNDS)
    for _ in range(tallies.MOST_PENDING):
        spread.observe(1.0, "a")
    assert f'x_count{{l="a"}} {tallies.MOST_PENDING}.0' in shown(registry)
