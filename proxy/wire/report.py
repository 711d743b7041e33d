"""Reads what a model's server says went wrong, in whatever shape, and says it in OpenAI's.

The shapes are those that servers were seen to use:

1. `{"error": {…}}`, OpenAI's own; `[{"error": {…}}]`, Gemini's; `{"error": "…"}`.
2. `{"object": "error", "message": …}`, of vLLM and Mistral; `{"type": "error", …}`.
3. In a stream an event named `error`, with any data.
4. `{"detail": …}`, `{"message": …}`, plain text, a page or nothing: only where a status has said that it is an error.

A status in the error's own words is that of the answer it stands for: gateways that have begun with 200 can say it
in no other way.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from transom.proxy.sse import events, is_named_error, payload
from transom.proxy.wire.convert import event
from transom.proxy.wire.raw import quote

__all__ = ["Report", "any_report", "presentable", "read_report", "reported_in"]

MOST_CHARACTERS = 4_096  # of a message that we write down
SAYING = ("message", "detail", "msg", "reason")
STATUS = ("code", "status", "status_code", "http_code")
LEAST, MOST = 400, 599
KIND = "upstream_error"


@dataclass(frozen=True, slots=True)
class Report:
    """One error: its body in OpenAI's shape, its message, and the status it names, if it names one."""

    body: bytes
    message: str
    status: int | None

    @property
    def event(self) -> bytes:
        """The error as an event of a stream: in one line, as clients read it."""
        return event(msgspec.json.decode(self.body)) if b"\n" in self.body else b"data: " + self.body + b"\n\n"


def read_report(body: bytes) -> Report | None:
    """Return the error that a JSON object reports; None if it reports none."""
    value = _value(body)
    if isinstance(value, list) and value:
        value, body = value[0], b""
    if not isinstance(value, dict):
        return None
    if not (value.get("error") or "error" in (value.get("object"), value.get("type"))):
        return None
    return _report(value, body)


def reported_in(block: bytes) -> tuple[bytes, Report] | None:
    """Return the first error in whole events of a stream, and what stands before it."""
    before = b""
    for one in events(block):
        said = payload(one)
        report = read_report(said)
        if report is None and is_named_error(one):
            report = any_report(said)
        if report is not None:
            return before, report
        before += one
    return None


def any_report(body: bytes) -> Report:
    """Return what is known to be an error, whatever it looks like."""
    value = _value(body)
    unshaped = value if isinstance(value, dict) else {"message": body.decode(errors="replace")}
    return read_report(body) or _report(unshaped, b"")


def presentable(status: int, body: bytes) -> bytes:
    """Return the body of a 4xx or 5xx as a client can read it: a JSON object as it is, all else in OpenAI's shape."""
    value = _value(body)
    if isinstance(value, dict):
        return body
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _report(value[0], b"").body
    text = body.decode(errors="replace").strip()
    if not text:
        text = f"The model's server answered with status {status} and no word of why."
    elif text.startswith("<"):
        text = f"The model's server answered with status {status} and a page instead of an error."
    return _report({"message": text}, b"").body


def _value(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body.decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def _report(value: dict[str, Any], body: bytes) -> Report:
    """Read an error's parts, from the object within or from around it; `body` as it came, if that can be kept."""
    error = value.get("error")
    inner = error if isinstance(error, dict) else value
    said = [error] if isinstance(error, str) else [inner.get(name) for name in SAYING]
    message = next((text if isinstance(text, str) else quote(text).decode() for text in said if text), "")
    message = message[:MOST_CHARACTERS] or "The model's server reported an error and did not say which."
    status = next((s for place in (inner, value) for name in STATUS if (s := _status(place.get(name)))), None)
    if body and isinstance(error, dict):
        return Report(body, message, status)
    kind = inner.get("type")
    shaped = {
        "message": message,
        "type": kind if isinstance(kind, str) and kind != "error" else KIND,
        "param": inner.get("param"),
        "code": inner.get("code"),
    }
    return Report(quote({"error": shaped}), message, status)


def _status(value: object) -> int | None:
    """Read a status that an error names; None for any other code."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == len("400"):
        value = int(value)
    named = isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST
    return int(str(value)) if named else None
