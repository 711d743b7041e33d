import gc
import weakref
from collections.abc import Iterator

import pytest

from transom.proxy.garbage import AT_LATEST_S, EVERYTHING_S, GROWN_S, QUIET_S, YOUNG, Garbage


class Knot:
    """A reference cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    garbage = Garbage()
    garbage.begin(0.0)
    yield garbage
    garbage.end()
    gc.freeze()


def knot() -> "weakref.ref[Knot]":
    return weakref.ref(Knot())


def later_knot(garbage: Garbage) -> tuple["weakref.ref[Knot]", list[list[int]]]:
    """Return a cycle that was in use when it was looked at, and now is not."""
    holder, kept = Knot(), many()
    garbage.tick(0.5, busy=True)
    return weakref.ref(holder), kept


def many() -> list[list[int]]:
    return [[number] for number in range(2 * YOUNG)]


def test_young_cycles_are_found_once_there_is_enough_to_look_at(garbage: Garbage) -> None:
    lost = knot()
    garbage.tick(1.0, busy=True)
    assert lost() is not None
    kept = many()
    garbage.tick(1.1, busy=True)
    assert lost() is None
    assert len(kept) == 2 * YOUNG


def test_what_is_in_use_is_looked_at_once_only(garbage: Garbage) -> None:
    kept = many()
    garbage.tick(1.0, busy=True)
    assert gc.get_freeze_count() >= len(kept)
    assert gc.get_count()[0] < YOUNG


@pytest.mark.parametrize(("after", "busy"), [(EVERYTHING_S, False), (AT_LATEST_S, True)])
def test_what_became_a_cycle_later_is_found_in_a_quiet_moment(garbage: Garbage, after: float, busy: bool) -> None:
    lost, kept = later_knot(garbage)
    garbage.tick(after - 0.1 - QUIET_S, busy=True)
    garbage.tick(after - 0.1, busy=busy)
    assert lost() is not None
    garbage.tick(after, busy=busy)
    assert lost() is None
    assert kept


def test_a_moment_is_quiet_when_nobody_came_for_a_while(garbage: Garbage) -> None:
    lost, kept = later_knot(garbage)
    garbage.tick(EVERYTHING_S, busy=True)
    garbage.tick(EVERYTHING_S + 0.9 * QUIET_S, busy=False)
    assert lost() is not None
    garbage.tick(EVERYTHING_S + QUIET_S, busy=False)
    assert lost() is None
    assert kept


def test_the_interpreters_rhythm_comes_back(garbage: Garbage) -> None:
    assert not gc.isenabled()
    garbage.end()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    garbage.tick(AT_LATEST_S, busy=False)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(("after", "busy"), [(QUIET_S, False), (GROWN_S, True)])
def test_what_became_a_cycle_later_is_found_when_memory_has_grown(after: float, busy: bool) -> None:
    memory = 100
    garbage = Garbage(lambda: memory)
    garbage.begin(0.0)
    try:
        lost, kept = later_knot(garbage)
        memory = 149
        garbage.tick(1.0 + 2 * after, busy=busy)
        assert lost() is not None
        memory = 151
        garbage.tick(2.0 + 2 * after, busy=True)
        garbage.tick(2.0 + 2.9 * after, busy=busy)
        assert lost() is not None
        garbage.tick(2.0 + 3 * after, busy=busy)
        assert lost() is None
        assert kept
    finally:
        garbage.end()


def test_a_c_library_that_cannot_give_memory_back_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.proxy.garbage.ctypes.CDLL", lambda _name: object())
    garbage = Garbage()
    garbage.begin(0.0)
    garbage.end()
    gc.freeze()
