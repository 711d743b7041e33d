"""What is struck out of an upstream's words, and what stays."""

import pytest

from transom.proxy.redaction import redact

KEY = "tenant-upstream-key-0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: tenant-u****************6789. You can find …",
        "Incorrect API key provided: sk-proj-********AbCd.",
        "invalid x-api-key: tena...6789",
        "key sk-ant-api03-abcdefghijklmnopqrst is disabled",
        "API key AIzaSyA1234567890abcdefghijklm not valid",
    ],
)
def test_keys_are_struck_out_whole_and_masked(text: str) -> None:
    shown = redact(text, [KEY, None])

    assert "[redacted]" in shown
    assert not any(part in shown for part in (KEY, "6789", "AbCd", "api03", "AIza"))


@pytest.mark.parametrize("text", ["Wait... what is none of this?", "5 ** 3 *** bold", "task-1234567890123456789", ""])
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text, ["none", KEY]) == text
