"""Reads raw chat messages into values: role, calls, identity, counts; it changes nothing but half surrogates."""

import asyncio
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from transom.policies.items import Call, Message
from transom.proxy.errors import BadRequest
from transom.proxy.tokens import Counter
from transom.proxy.wire.chat import MAX_DEPTH, MESSAGE_DEPTH
from transom.proxy.wire.parts import canonical_content, count_content, holds_media, readable
from transom.proxy.wire.raw import is_deeper, is_utf8, members, mend_surrogates

# What is counted within some milliseconds is counted where it stands.
OFF_LOOP_BYTES = 65_536
MESSAGE_TOKENS = 4
CALL_TOKENS = 4
DIGEST_BYTES = 16


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Custom(msgspec.Struct):
    name: str = ""
    input: str = ""


class _ToolCall(msgspec.Struct):
    id: str = ""
    function: _Function | None = None
    custom: _Custom | None = None


class _Form(msgspec.Struct):
    """The usual form of a message; one that does not fit it is brought into it member by member."""

    role: str
    content: Any = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    refusal: Any = None
    audio: Any = None


class Opened(msgspec.Struct, frozen=True):
    """A message for a reader: the texts in order, other parts as markers, reasoning left out."""

    role: str
    name: str | None
    texts: list[str]
    calls: tuple[Call, ...]
    answers: str | None


_SPACE = re.compile(r"[ \t\r\n]")
_decode = msgspec.json.Decoder(_Form).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def read_messages(slices: Sequence[bytes], counter: Counter, start: int = 0) -> list[Message]:
    """Read raw messages.

    Args:
        slices: JSON values as `ChatCall.slices` holds them. Of a repeated name in a message the last value counts.
        counter: counts the tokens of the texts.
        start: the place of the first one in `messages`, for errors.

    Raises:
        BadRequest: not an object, no string `role`, not UTF-8, or nested too deep; `param` is the place.
    """
    return [_read(payload, counter, start + place) for place, payload in enumerate(slices)]


async def read_messages_off_loop(slices: Sequence[bytes], counter: Counter, start: int = 0) -> list[Message]:
    """Do as `read_messages`, in a thread when there is more than 64 kB to read."""
    if sum(map(len, slices)) <= OFF_LOOP_BYTES:
        return read_messages(slices, counter, start)
    return await asyncio.to_thread(read_messages, slices, counter, start)


def fragments(payload: bytes) -> Opened:
    """Open a message that `read_messages` accepted, for a summary or a search."""
    form = _form(payload)
    texts = [form.content] if isinstance(form.content, str) else list(readable(form.content))
    if isinstance(form.refusal, str) and form.refusal:
        texts.append(form.refusal)
    if isinstance(form.audio, dict):
        transcript = form.audio.get("transcript")
        texts.append(transcript if isinstance(transcript, str) else "[audio]")
    return Opened(form.role, form.name, [text for text in texts if text], _calls(form), _answers(form))


def _read(payload: bytes, counter: Counter, place: int) -> Message:
    if is_deeper(payload, MESSAGE_DEPTH):
        raise BadRequest(f"The request body is nested deeper than {MAX_DEPTH} levels.", param=f"messages[{place}]")
    if not is_utf8(payload):
        raise BadRequest("The request body is not valid UTF-8.", param=f"messages[{place}]")
    try:
        form = _decode(payload)
    except msgspec.DecodeError:
        payload = mend_surrogates(payload)
        form = _checked_form(payload, place)
    content = canonical_content(form.content)
    tokens = MESSAGE_TOKENS + count_content(form.content, counter)
    if form.name:
        tokens += counter.count(form.name)
    calls: tuple[Call, ...] = ()
    identity: list[tuple[str, str, str]] = []
    if form.tool_calls or form.function_call:
        calls = _calls(form)
        for call in calls:
            tokens += CALL_TOKENS + counter.count(call.name) + counter.count(call.arguments)
            identity.append((call.id, call.name, _canonical_arguments(call.arguments)))
    return Message(
        form.role,
        payload,
        blake2b(
            _encode((form.role, content, form.name, form.tool_call_id, identity)), digest_size=DIGEST_BYTES
        ).digest(),
        tokens,
        (len(calls) + (content != "")) or 1,
        calls,
        _answers(form),
        holds_media(form.content),
    )


def _answers(form: _Form) -> str | None:
    if form.role == "tool":
        return form.tool_call_id or ""
    return _legacy_id(form.name or "") if form.role == "function" else None


def _legacy_id(name: str) -> str:
    """Stand in for the id that legacy function calls do not have."""
    return "function:" + name


def _calls(form: _Form) -> tuple[Call, ...]:
    calls = []
    for call in form.tool_calls or ():
        if call.function is not None:
            calls.append(Call(call.id, call.function.name, call.function.arguments))
        elif call.custom is not None:
            calls.append(Call(call.id, call.custom.name, call.custom.input))
        else:
            calls.append(Call(call.id, "", ""))
    if form.function_call is not None:
        name = form.function_call.name
        calls.append(Call(_legacy_id(name), name, form.function_call.arguments))
    return tuple(calls)


def _canonical_arguments(arguments: str) -> str:
    """Remove white space between the JSON tokens of arguments that parse; others stay as they are."""
    if not _SPACE.search(arguments) or is_deeper(arguments.encode(), MAX_DEPTH):
        return arguments
    try:
        return msgspec.json.format(arguments, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _form(payload: bytes) -> _Form:
    try:
        return _decode(payload)
    except msgspec.DecodeError:
        return _checked_form(payload, 0)


def _checked_form(payload: bytes, place: int) -> _Form:
    """Bring an unusual message into the form: what has another type than usual becomes text or is left out."""
    try:
        fields = {name: _value(raw) for name, raw in members(payload)}
    except msgspec.DecodeError:
        raise BadRequest("A message must be a JSON object.", param=f"messages[{place}].role") from None
    if not isinstance(fields.get("role"), str):
        raise BadRequest("A message must have a `role`.", param=f"messages[{place}].role")
    name, answered, legacy = fields.get("name"), fields.get("tool_call_id"), fields.get("function_call")
    calls = fields.get("tool_calls")
    return _Form(
        role=fields["role"],
        content=fields.get("content"),
        name=name if isinstance(name, str) else None,
        tool_call_id=answered if isinstance(answered, str) else None,
        tool_calls=[_tool_call(call) for call in calls] if isinstance(calls, list) else None,
        function_call=_function(legacy) if isinstance(legacy, dict) else None,
        refusal=fields.get("refusal"),
        audio=fields.get("audio"),
    )


def _value(raw: bytes) -> Any:
    """Decode a value; one with a number out of range stays raw, without its white space."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        return msgspec.Raw(msgspec.json.format(raw, indent=-1))


def _tool_call(call: Any) -> _ToolCall:
    if not isinstance(call, dict):
        return _ToolCall(function=_Function(arguments=_text(call)))
    function, custom = call.get("function"), call.get("custom")
    if not isinstance(function, dict) and isinstance(custom, dict):
        function = {"name": custom.get("name"), "arguments": custom.get("input")}
    return _ToolCall(_text(call.get("id")), _function(function if isinstance(function, dict) else {}))


def _function(function: dict[str, Any]) -> _Function:
    return _Function(_text(function.get("name")), _text(function.get("arguments")))


def _text(value: Any) -> str:
    """Return a string as it is, null as nothing, and anything else as its JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value).decode()
