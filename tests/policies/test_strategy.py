"""Which trimmers a policy may name, and the order they run in."""

import pytest
from pydantic import ValidationError

from transom.policies.options import Policy
from transom.policies.strategy import TRIMMERS


@pytest.mark.parametrize(
    ("strategy", "trimmers"),
    [
        ("context_window", ("compress", "truncate")),
        ("none", ()),
        (["none"], ()),
        ("count", ("count",)),
        (["clear_tool_results", "context_window"], ("clear_tool_results", "compress", "truncate")),
        (["recall", "truncate"], ("truncate", "recall")),
        ("shop.trimming:Oldest", ("shop.trimming:Oldest",)),
        (["compress", "own:Class.Inner"], ("compress", "own:Class.Inner")),
    ],
)
def test_trimmers(strategy: str | list[str], trimmers: tuple[str, ...]) -> None:
    assert Policy.model_validate({"strategy": strategy}).trimmers == trimmers


@pytest.mark.parametrize("name", TRIMMERS)
def test_every_trimmer_may_be_named(name: str) -> None:
    assert Policy.model_validate({"strategy": name}).strategy == name


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("trunkate", "names no trimmer; did you mean truncate?"),
        (["compress", "zzz"], "names no trimmer; there are none, context_window, compress"),
        ("module:", "names no trimmer"),
        ("a-b:Class", "names no trimmer"),
        ([], "must name at least one trimmer"),
        (["context_window", "truncate"], "names a trimmer twice"),
        (["none", "count"], "none must stand alone"),
        (5, "must be the name of a trimmer or a list of names"),
        ([5], "must be the name of a trimmer or a list of names"),
    ],
)
def test_bad_strategies(strategy: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate({"strategy": strategy})
    assert said in caught.value.errors()[0]["msg"]
