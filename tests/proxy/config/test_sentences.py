"""How a fault is put into words."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_core.core_schema import ErrorType

from transom.policies.options import Policy
from transom.proxy.config.model_entry import LiteLLMParams, ModelEntry, ModelInfo
from transom.proxy.config.schema import Admin, Config, Limits, Server, Session, Storage, TenantEntry, TenantLimits
from transom.proxy.config.sentences import explain, nearest, unknown_key

SECTIONS = (
    Admin, Config, Limits, LiteLLMParams, ModelEntry, ModelInfo, Policy, Server, Session, Storage, TenantEntry,
    TenantLimits,
)  # fmt: skip
ODD = (
    None, True, -1, 0, 5.5, 1e400, float("nan"), 10**400, "", "x", "9" * 5000, [], [None], ["", ""], {}, {"a": None},
    b"x",
)  # fmt: skip


def faults(section: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield pydantic's own wording and ours for every odd value under every key of a section."""
    for key in section.model_fields:
        for value in ODD:
            given: dict[str, Any] = {key: value}
            try:
                section.model_validate(given)
            except ValidationError as error:
                for details in error.errors():
                    if details["type"] in get_args(ErrorType):
                        yield details["msg"], explain(details, section)[1]


@pytest.mark.parametrize("section", SECTIONS)
def test_no_fault_is_told_in_pydantics_words(section: type[BaseModel]) -> None:
    found = list(faults(section))
    assert found
    assert [theirs for theirs, ours in found if ours in (theirs, "cannot be used as it is written")] == []
    assert [ours for _, ours in found if len(ours) > 200] == []


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("max_tokns", ["max_tokens", "trim_to"], "; did you mean max_tokens?"),
        ("MAX_TOKENS", ["max_tokens"], "; did you mean max_tokens?"),
        ("zebra", ["max_tokens"], ""),
        ("a", [], ""),
    ],
)
def test_nearest(word: str, known: list[str], said: str) -> None:
    assert nearest(word, known) == said


def test_an_unknown_key_far_from_all_others_lists_them() -> None:
    assert unknown_key("zebra", ["b", "a"]) == "unknown key; the keys here are a, b"


def test_sections_of_other_proxies_are_known_for_what_they_are() -> None:
    assert unknown_key("router_settings", ["a"]) == "belongs to LiteLLM's proxy and has no effect here; remove it"
