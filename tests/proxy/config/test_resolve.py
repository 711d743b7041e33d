"""Environment overrides and secrets, on trees."""

from pathlib import Path

import pytest

from transom.proxy.config.places import ConfigError, parse_yaml
from transom.proxy.config.resolve import apply_overrides, resolve_secrets


def overridden(text: str, **environment: str) -> dict[str, object]:
    document = parse_yaml(text, "f.yaml")
    apply_overrides(document, environment)
    return document.tree


def test_an_override_makes_the_sections_it_needs() -> None:
    assert overridden("", TRANSOM__A__B__C="5") == {"a": {"b": {"c": 5}}}
    assert overridden("a:\n", TRANSOM__A__B="x") == {"a": {"b": "x"}}


def test_an_override_finds_keys_whatever_their_case() -> None:
    assert overridden("Tenants: {ACME: {store: full}}", TRANSOM__TENANTS__acme__STORE="none") == {
        "Tenants": {"ACME": {"store": "none"}}
    }


def test_an_override_reaches_into_lists() -> None:
    assert overridden("a: [1, [2, {b: 3}]]", TRANSOM__A__1__1__B="4") == {"a": [1, [2, {"b": 4}]]}


@pytest.mark.parametrize("name", ["TRANSOM__A__2", "TRANSOM__A__X", "TRANSOM__B__C", "TRANSOM__", "TRANSOM__D__"])
def test_an_override_that_leads_nowhere(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"environment variable {name}: leads to no key"):
        overridden("{a: [1, 2], b: text, d: {e: 1}}", **{name: "1"})


def test_an_override_is_the_place_of_its_key() -> None:
    document = parse_yaml("a: {b: 1}", "f.yaml")
    apply_overrides(document, {"TRANSOM__A__B": "2"})
    assert str(document.place(("a", "b"))) == "environment variable TRANSOM__A__B"
    assert str(document.place(("a",))) == "f.yaml:1"


def test_secrets_stand_where_they_may() -> None:
    text = "{storage: {url: os.environ/X}, admin: {key: os.environ/X}, tenants: {t: {keys: [os.environ/X, plain]}}, \
model_list: [{litellm_params: {a: {b: [os.environ/X]}, n: 5}}], server: {host: os.environ/X}}"
    document = parse_yaml(text, "f.yaml")
    assert resolve_secrets(document, {"X": " value "}, Path()) == []
    assert document.tree == {
        "storage": {"url": "value"},
        "admin": {"key": "value"},
        "tenants": {"t": {"keys": ["value", "plain"]}},
        "model_list": [{"litellm_params": {"a": {"b": ["value"]}, "n": 5}}],
        "server": {"host": "os.environ/X"},
    }


def test_trees_of_the_wrong_shape_have_no_secrets() -> None:
    document = parse_yaml("{storage: 5, admin: [a], tenants: {t: 5}, model_list: [5, {litellm_params: 5}]}", "f.yaml")
    assert resolve_secrets(document, {}, Path()) == []


def test_a_relative_file_starts_at_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    document = parse_yaml(f"{{admin: {{key: file:key}}, storage: {{url: file:{tmp_path}/key}}}}", "f.yaml")
    assert resolve_secrets(document, {}, tmp_path) == []
    assert document.tree == {"admin": {"key": "secret"}, "storage": {"url": "secret"}}
