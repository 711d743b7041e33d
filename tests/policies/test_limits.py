import pytest

from transom.policies.limits import Limits
from transom.policies.view import Size

NONE = Limits()
BOTH = Limits(100, 10)


@pytest.mark.parametrize(
    ("limits", "size", "held"),
    [
        (NONE, Size(10**9, 10**9), True),
        (BOTH, Size(100, 10), True),
        (BOTH, Size(101, 10), False),
        (BOTH, Size(100, 11), False),
        (Limits(tokens=100), Size(100, 99), True),
        (Limits(items=10), Size(999, 10), True),
    ],
)
def test_a_size_within_every_limit_holds(limits: Limits, size: Size, held: bool) -> None:
    assert limits.hold(size) is held


def test_only_tokens_are_over_the_token_limit() -> None:
    assert BOTH.over_tokens(Size(101, 1))
    assert not BOTH.over_tokens(Size(100, 11))
    assert not NONE.over_tokens(Size(101, 1))


def test_a_share_is_one_of_each_limit_there_is() -> None:
    assert BOTH.scaled(0.8) == Limits(80, 8)
    assert Limits(items=10).scaled(0.5) == Limits(items=5)


@pytest.mark.parametrize(
    ("floor", "left"),
    [
        (Size(100, 10), BOTH),
        (Size(101, 10), Limits(items=10)),
        (Size(100, 11), Limits(tokens=100)),
        (Size(101, 11), NONE),
    ],
)
def test_a_limit_that_protected_messages_alone_exceed_is_left_out(floor: Size, left: Limits) -> None:
    assert BOTH.reachable(floor) == left
    assert NONE.reachable(floor) == NONE


@pytest.mark.parametrize(
    ("size", "share", "mark"),
    [
        (Size(101, 10), 0.7, Limits(70, 10)),
        (Size(100, 11), 0.7, Limits(100, 7)),
        (Size(101, 11), 0.25, Limits(25, 2)),
        (Size(101, 11), 1.0, BOTH),
        (Size(100, 10), 0.7, BOTH),
    ],
)
def test_a_cut_goes_down_to_a_share_of_each_limit_that_was_exceeded(size: Size, share: float, mark: Limits) -> None:
    assert BOTH.low_water(size, share) == mark
    assert NONE.low_water(size, share) == NONE
