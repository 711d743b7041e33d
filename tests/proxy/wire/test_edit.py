import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.wire.edit import append_text, prepend_content, replace_content, text_message

TEXT = st.text(max_size=10)
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
CONTENT = TEXT | st.none() | st.lists(PART, max_size=3)


def raw(content: Any, **fields: Any) -> bytes:
    return json.dumps({"role": "user", "content": content, "x": 1} | fields).encode()


def spoken(content: Any) -> list[str]:
    """Return the texts of a content that are not empty."""
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return [part["text"] for part in parts if part["text"]]


@given(TEXT, TEXT)
def test_a_text_message_is_its_role_and_text(role: str, text: str) -> None:
    assert json.loads(text_message(role, text)) == {"role": role, "content": text}


@given(CONTENT, TEXT)
def test_appended_text_comes_last_and_the_rest_stays(content: Any, text: str) -> None:
    changed = json.loads(append_text(raw(content), text))
    assert list(changed) == ["role", "content", "x"]
    assert "\n\n".join(spoken(changed["content"])) == "\n\n".join(spoken(content) + ([text] if text else []))
    if isinstance(content, list) and content:
        assert changed["content"][: len(content)] == content


@given(CONTENT, CONTENT)
def test_prepended_content_comes_first_and_the_rest_stays(front: Any, back: Any) -> None:
    changed = json.loads(prepend_content(raw(front, x=2, name="a"), raw(back)))
    assert list(changed) == ["role", "content", "x"]
    assert changed["x"] == 1
    assert "\n\n".join(spoken(changed["content"])) == "\n\n".join(spoken(front) + spoken(back))


def test_a_string_keeps_its_own_bytes_as_a_prefix() -> None:
    payload = b'{"role":"system","content":"caf\\u00e9 \xc3\xa9\\/","name":"n"}'
    assert append_text(payload, 'a"b') == b'{"role":"system","content":"caf\\u00e9 \xc3\xa9\\/\\n\\na\\"b","name":"n"}'


def test_parts_keep_their_bytes() -> None:
    payload = b'{"content":[{"type":"image_url", "a":1.0e2}],"role":"user"}'
    assert append_text(payload, "t") == (
        b'{"content":[{"type":"image_url", "a":1.0e2},{"type":"text","text":"t"}],"role":"user"}'
    )
    assert prepend_content(text_message("user", "t"), payload) == (
        b'{"content":[{"type":"text","text":"t"},{"type":"image_url", "a":1.0e2}],"role":"user"}'
    )


@pytest.mark.parametrize(
    "payload", [b'{"role":"user"}', b'{"role":"user","content":null}', b'{"role":"user","content":""}']
)
def test_without_content_the_text_becomes_it(payload: bytes) -> None:
    assert append_text(payload, "t") == b'{"role":"user","content":"t"}'
    assert replace_content(payload, "t") == b'{"role":"user","content":"t"}'
    assert prepend_content(text_message("user", "t"), payload) == b'{"role":"user","content":"t"}'


def test_a_content_of_another_kind_becomes_a_part() -> None:
    assert json.loads(append_text(raw({"a": 1}), "t"))["content"] == [{"a": 1}, {"type": "text", "text": "t"}]


@given(CONTENT, TEXT)
def test_replaced_content_keeps_its_kind_and_the_other_fields(content: Any, text: str) -> None:
    changed = json.loads(replace_content(raw(content, tool_call_id="c"), text))
    expected = [{"type": "text", "text": text}] if isinstance(content, list) else text
    assert changed == {"role": "user", "content": expected, "x": 1, "tool_call_id": "c"}
