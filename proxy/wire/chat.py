"""Reads and rewrites chat requests as bytes, re-serialising only what changes; it knows no policy and no HTTP."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from transom.proxy.errors import BadRequest
from transom.proxy.tokens import Counter
from transom.proxy.wire.raw import assemble, elements, is_deeper, is_utf8, members, mend_surrogates, quote

MAX_DEPTH = 100
# Levels that are left below the body and below its `messages` array.
FIELD_DEPTH = MAX_DEPTH - 1
MESSAGE_DEPTH = MAX_DEPTH - 2
# Tool lists come again with every request; up to this size their nesting is looked up instead of measured.
REMEMBERED_BYTES = 131_072
# What a hostile body can make slow is done where the event loop can go on meanwhile.
OFF_LOOP_BYTES = 1_048_576
DENSE_BYTES = 65_536  # from here on a body may hold enough members to take as long as a large one
DENSE_COMMAS = 10_000  # text of 512 kB has fewer
SHORTEST_MESSAGE = len(b'{"role":""},')

_EMPTY_ARRAY = re.compile(rb"\[[ \t\r\n]*\]$")
_TOOL_FIELDS = ("tools", "functions", "response_format")


@dataclass(slots=True)
class ChatCall:
    """A chat completion request, split but not interpreted further than needed.

    `fields` are the raw values of the top level in order (of a repeated name the last value, at the place of the
    first); `body` is what came, half surrogates replaced. `overhead` is what the model reads besides messages.
    """

    body: bytes
    fields: dict[str, bytes]
    repeated: bool
    model: str
    stream: bool
    include_usage: bool
    n: int
    output_limit: int | None
    tool_choice: bytes | None
    has_tools: bool
    overhead: tuple[bytes, ...]
    _slices: list[bytes] | None = field(default=None, repr=False)

    @property
    def slices(self) -> list[bytes]:
        """Return the raw messages; they are checked only by `read_messages`."""
        return self._slices if self._slices is not None else self.resume([])

    def resume(self, known: list[bytes]) -> list[bytes]:
        """Split the messages, given those of the thread's previous request: what both share is only compared.

        Returns:
            The raw messages. Elements taken from `known` are its own objects, so `is` tells them.
        """
        if self._slices is None:
            self._slices = elements(self.fields["messages"], known)
        elif self._slices[: len(known)] == known:
            self._slices[: len(known)] = known
        return self._slices

    def exceeds(self, most: int) -> bool:
        """Tell whether there are more messages than so many; they are split for it only if their bytes allow it."""
        return len(self.fields["messages"]) > most * SHORTEST_MESSAGE and len(self.slices) > most

    @property
    def user(self) -> str | None:
        """Return the `user` field, if it is a non-empty string."""
        return self.text("user")

    @property
    def safety_identifier(self) -> str | None:
        """Return the `safety_identifier` field, if it is a non-empty string."""
        return self.text("safety_identifier")

    def text(self, path: str) -> str | None:
        """Return the non-empty string at a dotted path such as `metadata.session_id`; anything else is None."""
        name, *rest = path.split(".")
        found = lenient(self.fields.get(name))
        for step in rest:
            found = found.get(step) if isinstance(found, dict) else None
        return found if isinstance(found, str) and found else None


def parse_call(body: bytes) -> ChatCall:
    """Split a request body; only `messages` and `model` are judged, all else is the upstream's business.

    Messages are left raw: `read_messages` checks their form, nesting and UTF-8.

    Raises:
        BadRequest: not a JSON object in UTF-8, nested too deep, no `model`, or no `messages`.
    """
    return _call(*split_body(body))


def _call(body: bytes, pairs: list[tuple[str, bytes]]) -> ChatCall:
    fields = dict(pairs)
    for name, value in fields.items():
        if name != "messages":
            check_field(name, value)
    for name in ("messages", "model"):
        if name not in fields:
            raise BadRequest(f"The request body has no `{name}`.", param=name)
    messages = fields["messages"]
    if not messages.startswith(b"[") or _EMPTY_ARRAY.match(messages):
        raise BadRequest("`messages` must be a non-empty array.", param="messages")
    model = lenient(fields["model"])
    if not isinstance(model, str) or not model:
        raise BadRequest("`model` must be a non-empty string.", param="model")
    options = lenient(fields.get("stream_options"))
    tools = fields.get("tools", b"")
    return ChatCall(
        body=body,
        fields=fields,
        repeated=len(fields) != len(pairs),
        model=model,
        stream=fields.get("stream") == b"true",
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        n=_whole(fields.get("n")) or 1,
        output_limit=_whole(fields.get("max_completion_tokens")) or _whole(fields.get("max_tokens")),
        tool_choice=fields.get("tool_choice"),
        has_tools=tools.startswith(b"[") and not _EMPTY_ARRAY.match(tools),
        overhead=tuple(fields[name] for name in _TOOL_FIELDS if fields.get(name, b"null") != b"null"),
    )


async def parse_call_off_loop(body: bytes) -> ChatCall:
    """Do as `parse_call`, in a thread when the body is larger than 1 MB, dense, or to be mended."""
    if not takes_long(body):
        with suppress(msgspec.DecodeError, RecursionError):
            return _call(body, members(body))
    return await asyncio.to_thread(_parse_and_split, body)


def _parse_and_split(body: bytes) -> ChatCall:
    call = parse_call(body)
    call.resume([])
    return call


def takes_long(body: bytes) -> bool:
    """Tell whether a body is to be read in a thread: it is large, or may have very many members."""
    return len(body) > OFF_LOOP_BYTES or (len(body) > DENSE_BYTES and body.count(b",") > DENSE_COMMAS)


def count_overhead(call: ChatCall, counter: Counter) -> int:
    """Return the tokens of tools, functions and response format, counted as the JSON that was sent."""
    return sum(counter.count(raw.decode()) for raw in call.overhead)


def compose(
    call: ChatCall,
    payloads: Sequence[bytes],
    *,
    model: str,
    stream_usage: bool,
    tool_choice: bytes | None = None,
    drop_tools: bool = False,
) -> bytes:
    """Build the body for the upstream: the same bytes object where nothing changes, else a splice of raw values.

    Args:
        call: the parsed request.
        payloads: the messages to send.
        model: the upstream's name of the model.
        stream_usage: ask a stream for its usage. An existing `stream_options` object keeps its other keys and order;
            null, or what is not an object, stays as it is.
        tool_choice: raw JSON to send as `tool_choice`.
        drop_tools: leave out `tools` and `tool_choice`.
    """
    changes: dict[str, bytes] = {}
    if list(payloads) != call.slices:
        changes["messages"] = b"[" + b",".join(payloads) + b"]"
    if model != call.model:
        changes["model"] = quote(model)
    if stream_usage and call.stream:
        changes |= _with_usage(call.fields.get("stream_options", b"{}"))
    if tool_choice is not None:
        changes["tool_choice"] = tool_choice
    dropped = {"tools", "tool_choice"} & call.fields.keys() if drop_tools else set()
    if not (changes or dropped or call.repeated):
        return call.body
    return assemble((name, value) for name, value in (call.fields | changes).items() if name not in dropped)


def _with_usage(options: bytes) -> dict[str, bytes]:
    """Return the changed `stream_options`, or nothing where it is not an object or asks for usage already."""
    if not options.startswith(b"{"):
        return {}
    fields = dict(members(options))
    if fields.get("include_usage") == b"true":
        return {}
    fields["include_usage"] = b"true"
    return {"stream_options": assemble(fields.items())}


def split_body(body: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return a body, half surrogates replaced, and its raw fields in order; raises BadRequest as `parse_call` does."""
    try:
        try:
            return body, members(body)
        except msgspec.DecodeError as error:
            mended = mend_surrogates(body) if b"\\u" in body else body
            if isinstance(error, msgspec.ValidationError) or mended == body:
                raise
            return mended, members(mended)
    except RecursionError:
        raise _too_deep("body") from None
    except msgspec.ValidationError:
        raise BadRequest("The request body must be a JSON object.", param="body") from None
    except msgspec.DecodeError:
        raise BadRequest(_malformed(body), param="body") from None


def _malformed(body: bytes) -> str:
    if not body.strip():
        return "The request body is empty."
    if body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "The request body starts with a byte order mark; send plain UTF-8."
    if not is_utf8(body):
        return "The request body is not valid UTF-8."
    return "The request body is not valid JSON."


def check_field(name: str, value: bytes) -> None:
    """Raise BadRequest for a field that is not UTF-8 or nests too deep."""
    if not is_utf8(value):
        raise BadRequest("The request body is not valid UTF-8.", param=name)
    if _nests_too_deep(value) if len(value) <= REMEMBERED_BYTES else is_deeper(value, FIELD_DEPTH):
        raise _too_deep(name)


@lru_cache(maxsize=64)
def _nests_too_deep(value: bytes) -> bool:
    return is_deeper(value, FIELD_DEPTH)


def _too_deep(param: str) -> BadRequest:
    return BadRequest(f"The request body is nested deeper than {MAX_DEPTH} levels.", param=param)


def lenient(raw: bytes | None) -> Any:
    """Decode a value that is not ours to judge; what cannot be represented is None."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError):
        return None


def _whole(raw: bytes | None) -> int | None:
    number = lenient(raw)
    if isinstance(number, bool) or not isinstance(number, int | float) or number < 1:
        return None
    return int(number)
