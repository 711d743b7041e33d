import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transom.proxy.wire.raw import assemble, elements, is_deeper, is_utf8, members, mend_surrogates

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
LAYOUTS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.none() | st.integers(0, 2),
        "separators": st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", "\t: ")]),
    }
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), LAYOUTS)
def test_an_object_is_its_members(value: dict[str, Any], layout: dict[str, Any]) -> None:
    split = members(json.dumps(value, **layout).encode())
    assert {name: json.loads(raw) for name, raw in split} == value
    assert [name for name, _ in split] == list(value)
    assert json.loads(assemble(split)) == value


def test_repeated_names_are_kept_in_order() -> None:
    assert members(b'{"a": 1, "b":[2 ,3], "\\u0061":  4}') == [("a", b"1"), ("b", b"[2 ,3]"), ("a", b"4")]


@given(st.lists(VALUES, max_size=4), LAYOUTS)
def test_an_array_is_its_elements(value: list[Any], layout: dict[str, Any]) -> None:
    assert [json.loads(raw) for raw in elements(json.dumps(value, **layout).encode())] == value


OBJECTS = st.dictionaries(st.text(max_size=3), SCALARS, max_size=2)


@given(st.lists(OBJECTS, max_size=5), st.lists(OBJECTS, max_size=5), LAYOUTS, st.integers(0, 5))
def test_known_elements_change_nothing_but_the_work(
    old: list[Any], new: list[Any], layout: dict[str, Any], kept: int
) -> None:
    known = elements(json.dumps(old, **layout).encode())
    raw = json.dumps(old[:kept] + new, **layout).encode()
    assert elements(raw, known) == elements(raw)


@pytest.mark.parametrize("gap", [b",", b", ", b" ,\n  "])
def test_what_is_shared_with_known_elements_is_the_same_objects(gap: bytes) -> None:
    known = elements(b'[{"a":1}' + gap + b'{"b":"x"}]')
    longer = elements(b'[ {"a":1}' + gap + b'{"b":"x"}' + gap + b'{"c":3}\n]', known)
    assert longer == [b'{"a":1}', b'{"b":"x"}', b'{"c":3}']
    assert all(one is other for one, other in zip(longer, known, strict=False))
    again = elements(b'[{"a":1}' + gap + b'{"b":"x"}]', known)
    assert again == known
    assert again is not known
    assert again[0] is known[0]


def test_an_element_that_only_begins_like_the_known_one_is_another() -> None:
    assert elements(b"[1,23]", [b"1", b"2"]) == [b"1", b"23"]


@pytest.mark.parametrize("raw", [b"", b"[", b"{}", b"[1,]", b"[1] 2", b"null", b'["\\ud83d"]', b"[NaN]"])
def test_what_is_no_array_is_an_error(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        elements(raw)


@given(VALUES, st.integers(0, 6))
def test_depth_is_measured(value: Any, levels: int) -> None:
    assert is_deeper(json.dumps(value).encode(), levels) == (depth(value) > levels)


@pytest.mark.parametrize("unit", [b'{"a":%s}', b"[%s]", b'[[], "[[]]", {"a":1}, %s, {}]', b'{"\\"[":"\\\\", "b":%s}'])
def test_depth_is_exact_at_the_limit(unit: bytes) -> None:
    raw = b"{}"
    for _ in range(99):
        raw = unit.replace(b"%s", raw)
    assert not is_deeper(raw, 100)
    assert is_deeper(unit.replace(b"%s", raw), 100)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything count as long: it is taken apart, level by level."""
    monkeypatch.setattr("transom.proxy.wire.raw.AT_ONCE", 0)


@pytest.mark.usefixtures("in_parts")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES, st.integers(0, 6))
def test_depth_is_the_same_in_parts(value: Any, levels: int) -> None:
    assert is_deeper(json.dumps(value).encode(), levels) == (depth(value) > levels)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("odd", [b'"\\ud83d"', b'{"\xff":1}'])
def test_what_cannot_be_taken_apart_is_measured_whole(odd: bytes) -> None:
    raw = b'{"a":[[1],%b]}' % odd
    assert is_deeper(raw, 2)
    assert not is_deeper(raw, 3)


def test_brackets_in_strings_are_no_depth() -> None:
    assert not is_deeper(json.dumps({"a": "[" * 10_000 + '"\\' + "{" * 500}).encode(), 1)
    assert not is_deeper(json.dumps({"a": "[" * 300_000 + '"\\' + "{" * 500}).encode(), 1)


# Every way in which halves, pairs, other escapes and escaped backslashes can follow each other.
@given(
    st.lists(
        st.sampled_from([r"\ud83d", r"\uDE00", r"\uDBFF", r"\udfff", r"\u0041", r"\\", r"\n", r"\"", "d83d", "u", "é"]),
        max_size=8,
    )
)
def test_halves_become_the_replacement_character(pieces: list[str]) -> None:
    raw = ('"' + "".join(pieces) + '"').encode()
    whole = json.loads(raw).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    mended = mend_surrogates(raw)
    assert json.loads(mended) == msgspec.json.decode(mended) == whole
    assert len(mended) == len(raw)
    if json.loads(raw) == whole:
        assert mended == raw


@pytest.mark.parametrize("run", [0, 1, 2, 3, 4, 5, 31, 32, 33, 1000, 1001])
@pytest.mark.parametrize("before", [b"", b"x"])
def test_a_run_of_backslashes_escapes_itself(run: int, before: bytes) -> None:
    raw = before + b"\\" * run + b"\\ud83d"
    assert mend_surrogates(raw) == (raw if run % 2 else before + b"\\" * run + b"\\ufffd")


@given(st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
def test_utf8_is_told(raw: bytes) -> None:
    assert is_utf8(raw) == (raw.decode(errors="ignore").encode() == raw)
