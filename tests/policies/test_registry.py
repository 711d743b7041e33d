import pytest

from tests.policies.builders import ask, finished, policy, thread, user
from transom.policies.limits import Limits
from transom.policies.registry import BUILT_IN, UnknownTrimmer, trimmers
from transom.policies.strategy import CONTEXT_WINDOW, TRIMMERS
from transom.policies.trimmer import TrimRequest, TrimResult, unchanged
from transom.policies.truncate import Truncate


class Own:
    async def trim(self, request: TrimRequest) -> TrimResult:
        return unchanged(request)


def load(name: str) -> object:
    return {"mine:Own": Own, "mine:Other": object}[name]()


def test_rule_1_each_name_of_a_strategy_has_one_trimmer() -> None:
    assert {*BUILT_IN, "none", "context_window"} == set(TRIMMERS)
    assert set(CONTEXT_WINDOW) <= BUILT_IN.keys()


@pytest.mark.parametrize("name", BUILT_IN)
def test_rule_1_and_each_leaves_a_short_thread_alone(name: str) -> None:
    ((found, trimmer),) = trimmers((name,), load)
    assert found == name
    request = ask(thread(user("a")), limits=Limits(100, 10), policy=policy(strategy=name))
    assert finished(trimmer.trim(request)) == unchanged(request)


def test_rule_2_trimmers_come_in_the_order_of_their_names() -> None:
    found = trimmers(("truncate", "mine:Own", "compress"), load)
    assert [name for name, _ in found] == ["truncate", "mine:Own", "compress"]
    assert isinstance(found[0][1], Truncate)


def test_rule_3_an_own_trimmer_is_loaded() -> None:
    ((_, trimmer),) = trimmers(("mine:Own",), load)
    assert isinstance(trimmer, Own)


def test_rule_3_it_must_have_the_one_method() -> None:
    with pytest.raises(UnknownTrimmer, match="mine:Other has no method trim"):
        trimmers(("mine:Other",), load)


@pytest.mark.parametrize("name", ["none", "context_window", "compres"])
def test_rule_4_any_other_name_is_an_error(name: str) -> None:
    with pytest.raises(UnknownTrimmer, match=f"no trimmer '{name}'"):
        trimmers((name,), load)
