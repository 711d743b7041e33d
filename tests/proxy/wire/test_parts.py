import json
from typing import Any

import pytest

from transom.proxy.wire.parts import canonical_content, count_content, readable


class Characters:
    def count(self, text: str) -> int:
        return len(text)


@pytest.mark.parametrize(
    ("content", "canonical"),
    [
        (None, ""),
        ("", ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": ""}], ""),
        ([{"type": "text", "text": "a"}, "b"], ["a", "b"]),
        ([], []),
        ([{"type": "text", "text": 5}], [{"type": "text", "text": 5}]),
        ([{"type": "x", "cache_control": {}, "y": [{"cache_control": {}}]}], [{"type": "x", "y": [{}]}]),
        (5, 5),
    ],
)
def test_the_canonical_form_holds_what_counts(content: Any, canonical: Any) -> None:
    assert canonical_content(content) == canonical


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (None, 0),
        ("abc", 3),
        (["abc", {"type": "text", "text": "de"}, {"type": "other", "text": "f"}], 6),
        ([{"type": "image", "source": {}}], 765),
        ([{"type": "file", "file": {"file_id": "f"}}], len('{"type":"file","file":{"file_id":"f"}}') / 4 + 0.5),
        ([{"type": "input_audio", "input_audio": {"data": None}}], 13),
        ([{"type": ["text"]}], 5),
        ({"a": 1}, 2),
    ],
)
def test_tokens_are_counted_by_kind(content: Any, tokens: float) -> None:
    assert count_content(content, Characters()) == tokens


def test_a_person_reads_texts_and_markers() -> None:
    content = json.loads(
        '["a", {"type": "text", "text": "b"}, {"type": "image_url"}, {"type": "reasoning", "text": "hm"},'
        ' {"type": ["text"]}, null]'
    )
    assert list(readable(content)) == ["a", "b", "[image]", "[other content]"]
    assert list(readable("a")) == ["a"]
    assert list(readable(None)) == []
