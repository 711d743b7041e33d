"""YAML with places: what a tree looks like, which line a key has, and what is refused with which line."""

from pathlib import Path

import pytest

from transom.proxy.config.places import ConfigError, Place, key_path, parse_scalar, parse_yaml, plain, read_yaml


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "config.yaml")
    return str(caught.value)


def test_every_key_has_its_line() -> None:
    document = parse_yaml("a: 1\nb:\n  c:\n    - x\n    - d: 2\n", "f.yaml")
    assert document.tree == {"a": 1, "b": {"c": ["x", {"d": 2}]}}
    assert document.place(("b", "c")) == Place("f.yaml", 3)
    assert document.place(("b", "c", 1, "d")) == Place("f.yaml", 5)


def test_a_missing_key_has_the_line_of_what_is_around_it() -> None:
    document = parse_yaml("a:\n  b:\n    c: 1\n", "f.yaml")
    assert str(document.place(("a", "b", "z", "y"))) == "f.yaml:2"
    assert str(document.place(("z",))) == "f.yaml"


def test_only_true_and_false_are_booleans() -> None:
    tree = parse_yaml("{a: on, b: off, c: no, d: true, e: FALSE, on: 1, 12: 2}", "f").tree
    assert tree == {"a": "on", "b": "off", "c": "no", "d": True, "e": False, "on": 1, "12": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1_000", 1000),
        ("-3", -3),
        ("010", 10),
        ("080", 80),
        ("9" * 5000, "9" * 5000),
        ("0.7", 0.7),
        (".5", 0.5),
        ("1e-6", 1e-6),
        ("2.5e3", 2500.0),
        ("null", None),
        ("~", None),
        ("", None),
        ("0.0.0.0", "0.0.0.0"),
        ("2024-01-02", "2024-01-02"),
        ("1:30", "1:30"),
        ("12e", "12e"),
        ("e5", "e5"),
        ("*", "*"),
        ("os.environ/X", "os.environ/X"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)


@pytest.mark.parametrize("tagged", ["!!int x", "!!float x", "!!bool x"])
def test_what_is_tagged_as_a_number_and_is_none_stays_text(tagged: str) -> None:
    assert parse_yaml(f"a: {tagged}", "f").tree == {"a": "x"}


def test_anchors_and_merges() -> None:
    document = parse_yaml("base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  y: 3\n", "f.yaml")
    assert document.tree["own"] == {"x": 1, "y": 3}
    assert str(document.place(("own", "y"))) == "f.yaml:4"


def test_an_empty_file_is_an_empty_tree() -> None:
    assert parse_yaml("# nothing\n", "f.yaml").tree == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "config.yaml:3: a: is written twice, first in line 1"),
        ("a:\n  b: 1\n  b: 2\n", "config.yaml:3: a.b: is written twice, first in line 2"),
        ("- a\n", "config.yaml:1: must be a mapping of keys, such as model_list:"),
        ("text", "config.yaml:1: must be a mapping of keys, such as model_list:"),
        ("a: 1\n\tb: 2\n", "config.yaml:2: is not valid YAML: "),
        ("a: [1, 2\nb: 3\n", "config.yaml:1: is not valid YAML: "),
        ("a: 1\n b: 2\n", "config.yaml:2: is not valid YAML: "),
        ("a: *nowhere\n", "config.yaml:1: is not valid YAML: no anchor of that name"),
        ("a: !!python/object/apply:os.getcwd []\n", "config.yaml:1: a list or a mapping may have no tag"),
        ("a: !!python/name:os.system\n", "config.yaml:1: a text that begins with ! is read as a tag"),
        ("a: 1\n---\nb: 2\n", "config.yaml:2: is not valid YAML: --- begins a second document"),
        ("? [a, b]\n: 1\n", "config.yaml:1: a key must be a word, not a list or a mapping"),
        ("a: &x [*x]\n", "config.yaml: is nested too deeply"),
        ("a: \x00\n", "config.yaml: holds a character that YAML does not allow"),
    ],
)
def test_what_is_no_usable_yaml(text: str, said: str) -> None:
    assert refused(text).startswith(said)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
    for name, said in (
        ("none.yaml", "none.yaml: there is no such file"),
        ("latin.yaml", "latin.yaml:2: is not UTF-8 text"),
        (".", ".: cannot be read: Is a directory"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_yaml(tmp_path / name, name)
        assert str(caught.value) == said


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(tmp_path / "bom.yaml", "bom.yaml").tree == {"a": 1}


def test_key_paths_are_written_as_people_do() -> None:
    assert key_path(("model_list", 0, "litellm_params", "model")) == "model_list[0].litellm_params.model"


def test_a_mapping_is_copied() -> None:
    inner = {"b": [1]}
    document = plain({"a": inner}, "test")
    document.tree["a"]["b"].append(2)
    assert inner == {"b": [1]}


def test_faults_come_in_the_order_of_lines_and_once() -> None:
    document = parse_yaml("a: 1\nb: 2\n", "f.yaml")
    error = ConfigError(document.fault(("b",), "two"), document.fault(("a",), "one"), document.fault(("b",), "two"))
    assert str(error) == "f.yaml:1: a: one\nf.yaml:2: b: two"


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "a:\n  - b: 1\n \tc: 2"])
def test_a_tab_before_a_key(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f")
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "\t" in line)
    assert (
        str(caught.value) == f"f:{line}: is not valid YAML: the line is indented with a tab; YAML indents with spaces"
    )
