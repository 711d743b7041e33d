"""A policy's keys: defaults, presets, bounds, and what it says of itself."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from transom.policies.options import Policy
from transom.policies.presets import PRESETS

AUTO = {"max_tokens": "auto", "keep_verbatim": "fill", "trim_to": 0.5, "keep_recent_iterations": 2}
SEED_DEFAULTS = {
    "preset": None,
    "strategy": "context_window",
    "enforce": "on",
    "percent": 100,
    "max_tokens": None,
    "max_context_items": None,
    "keep_recent_turns": 3,
    "keep_recent_iterations": 4,
    "keep_verbatim": "turns",
    "keep_first_turns": 0,
    "trim_to": 0.7,
    "compact_at": 0.8,
    "max_tool_calls_per_turn": 10,
    "max_tool_rounds_per_turn": None,
    "max_repeated_tool_calls": None,
    "on_tool_limit": "final_answer",
    "tool_limit_note": True,
    "summary_model": None,
    "summary_role": "auto",
    "summary_max_tokens": None,
    "summary_wait": 10,
    "summary_timeout": 60,
    "constraints_max_tokens": 400,
    "min_span_tokens": 256,
    "mid_system": "keep",
    "on_unfit": "forward",
    "reserve_tokens": 4096,
    "keep_last": 10,
    "keep_tool_results": 3,
    "exclude_tools": (),
    "clear_at_least": 0,
    "recall_tokens": 512,
}


def test_defaults() -> None:
    assert Policy.model_validate({}).model_dump() == SEED_DEFAULTS


@pytest.mark.parametrize(
    ("preset", "changed"),
    [
        ("voice", {"max_tokens": 4000, "max_context_items": 20}),
        ("chat", {**AUTO, "max_tool_calls_per_turn": 100}),
        (
            "agent",
            {
                **AUTO,
                "strategy": ("clear_tool_results", "compress", "truncate"),
                "keep_first_turns": 1,
                "max_tool_calls_per_turn": None,
                "max_repeated_tool_calls": 8,
            },
        ),
        ("recall", {**AUTO, "strategy": ("compress", "truncate", "recall"), "max_tool_calls_per_turn": 100}),
    ],
)
def test_presets(preset: str, changed: dict[str, object]) -> None:
    policy = Policy.model_validate({"preset": preset})
    assert policy.model_dump() == {**SEED_DEFAULTS, "preset": preset, **changed}
    assert policy.warnings() == ()


def test_written_keys_override_the_preset_and_are_remembered() -> None:
    policy = Policy.model_validate({"preset": "agent", "max_tokens": 500, "max_repeated_tool_calls": None})
    assert (policy.max_tokens, policy.max_repeated_tool_calls, policy.keep_first_turns) == (500, None, 1)
    assert policy.written == {"preset", "max_tokens", "max_repeated_tool_calls"}


def test_a_policy_validated_again_is_the_same() -> None:
    policy = Policy.model_validate({"preset": "chat", "keep_last": 3})
    assert Policy.model_validate(policy).written == {"preset", "keep_last"}


@given(st.sampled_from(sorted(PRESETS)), st.sets(st.sampled_from(["keep_last", "trim_to", "max_tokens"])))
def test_what_is_not_written_comes_from_the_preset(preset: str, keys: set[str]) -> None:
    values = {"keep_last": 77, "trim_to": 0.123, "max_tokens": 777}
    written = {key: values[key] for key in keys}
    dumped = Policy.model_validate({"preset": preset, **written}).model_dump()
    assert dumped == {**Policy.model_validate({"preset": preset}).model_dump(), **written}


@pytest.mark.parametrize(("written", "read"), [(True, "on"), (False, "off"), ("on", "on"), ("audit", "audit")])
def test_enforce_may_be_a_bare_on_or_off(written: object, read: str) -> None:
    assert Policy.model_validate({"enforce": written}).enforce == read


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("percent", 101),
        ("percent", -1),
        ("percent", float("nan")),
        ("max_tokens", 0),
        ("max_tokens", "lots"),
        ("max_context_items", 0),
        ("keep_recent_turns", 0),
        ("trim_to", 0),
        ("trim_to", 1.01),
        ("compact_at", 0),
        ("compact_at", 80),
        ("max_tool_calls_per_turn", 0),
        ("summary_wait", -1),
        ("summary_timeout", 0),
        ("summary_wait", float("inf")),
        ("reserve_tokens", -1),
        ("keep_last", 0),
        ("summary_model", ""),
        ("enforce", "maybe"),
        ("preset", "chatty"),
        ("max_tokns", 5),
    ],
)
def test_bounds(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate({key: value})
    assert [error["loc"] for error in caught.value.errors()] == [(key,)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("percent", 0),
        ("percent", 0.5),
        ("trim_to", 1),
        ("compact_at", None),
        ("summary_wait", 0),
        ("reserve_tokens", 0),
        ("max_tokens", "auto"),
        ("max_tokens", 1),
        ("keep_recent_iterations", 0),
    ],
)
def test_edges_that_are_allowed(key: str, value: object) -> None:
    assert getattr(Policy.model_validate({key: value}), key) == value


def test_numbers_may_come_as_texts_from_the_environment() -> None:
    policy = Policy.model_validate({"max_tokens": "4000", "trim_to": "0.5", "tool_limit_note": "off"})
    assert (policy.max_tokens, policy.trim_to, policy.tool_limit_note) == (4000, 0.5, False)


@pytest.mark.parametrize(
    ("mapping", "caps"),
    [
        ({}, (10, None, None)),
        ({"strategy": "none"}, (None, None, None)),
        ({"strategy": "none", "max_tool_calls_per_turn": 7}, (7, None, None)),
        ({"strategy": "none", "preset": "agent"}, (None, None, None)),
        ({"strategy": "none", "max_tool_rounds_per_turn": 2, "max_repeated_tool_calls": 3}, (None, 2, 3)),
        ({"preset": "agent"}, (None, None, 8)),
        ({"max_tool_rounds_per_turn": 2}, (10, 2, None)),
    ],
)
def test_caps_count_under_none_only_when_written(mapping: dict[str, Any], caps: tuple[int | None, ...]) -> None:
    policy = Policy.model_validate(mapping)
    assert caps == (
        policy.effective_tool_calls_cap,
        policy.effective_tool_rounds_cap,
        policy.effective_repeated_calls_cap,
    )


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({}, ("max_tool_calls_per_turn is not set: the default, 10 a turn, holds",)),
        ({"max_tool_calls_per_turn": 10}, ()),
        ({"max_tool_calls_per_turn": None}, ()),
        ({"strategy": "none"}, ()),
        (
            {"strategy": "token_budget", "max_context_items": 5, "max_tool_calls_per_turn": 9},
            ("token_budget knows no item limit",),
        ),
        ({"preset": "chat", "compact_at": 0.5}, ("compact_at 0.5 is not above trim_to 0.5",)),
        ({"preset": "chat", "compact_at": None}, ()),
        ({"preset": "chat", "max_tokens": 499}, ("max_tokens 499 hardly holds one question and its answer",)),
        ({"preset": "chat", "max_tokens": 500}, ()),
        ({"preset": "chat", "strategy": "none", "max_tokens": 5}, ()),
    ],
)
def test_warnings(mapping: dict[str, Any], said: tuple[str, ...]) -> None:
    warnings = Policy.model_validate(mapping).warnings()
    assert len(warnings) == len(said)
    assert all(warning.startswith(start) for warning, start in zip(warnings, said, strict=True))


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate({}).max_tokens = 5


def test_every_key_is_described() -> None:
    assert [name for name, field in Policy.model_fields.items() if not field.description] == []
