"""Collects a streamed answer into the messages a JSON answer would have held; it frames no events and changes no bytes.

The rules, beyond OpenAI's own, are what servers were seen to do:

1. Strings of a delta are appended to what came before, lists too; of anything else the last one stays.
2. A tool call without an index, or with a used index and another id, is a call of its own; a piece with neither index,
   id nor name belongs to the newest call. A name that is repeated whole is not appended.
3. Arguments that come as an object become its JSON.
4. Null is no piece, wherever it stands.
5. An emoji may come in two halves, each in a delta of its own; a half that stays alone becomes U+FFFD.
"""

import json
from typing import Any

import msgspec

from transom.proxy.sse import events, is_named_error, payload
from transom.proxy.wire.chat import MESSAGE_DEPTH
from transom.proxy.wire.raw import is_deeper, quote
from transom.proxy.wire.reply import Reply, Usage, read_usage, says_something
from transom.proxy.wire.report import read_report

# Where a string may be growing: tool_calls[…].function.arguments.
_PIECE_LEVELS = 3
_DONE = b"[DONE]"
_GOING_ON = (None, "", "null")  # for a choice that has not ended; the last two are of servers that fill every field
_DONE_EVENT = b"data: [DONE]\n\n"


class _Chunk(msgspec.Struct):
    id: Any = None
    choices: Any = None
    usage: Any = None
    error: Any = None
    type: Any = None
    object: Any = None


_decoder = msgspec.json.Decoder(_Chunk)
_decode_line = _decoder.decode
_decode_lines = _decoder.decode_lines


class _Pieces(list[str]):
    """A string that is still growing."""

    __slots__ = ()


class StreamReader:
    """Follow a stream and tell what has been seen of it so far.

    `malformed_seen`: an event was not a JSON object. `error_seen`: the upstream reported an error in the stream.
    `content_seen`: there was text, or a refusal, for the reader. `done_seen`: `[DONE]` came. `finishes`: the number of
    choices that have ended. `usage_event_seen`: the extra usage event came, see `is_usage_event`.
    """

    def __init__(self) -> None:
        self.finishes = 0
        self.tool_call_seen = False
        self.content_seen = False
        self.error_seen = False
        self.malformed_seen = False
        self.done_seen = False
        self.usage_event_seen = False
        self._id: str | None = None
        self._usage: Usage | None = None
        self._choices: dict[int, _Choice] = {}
        self._halves = False
        self._reply: Reply | None = None  # what has come so far, once somebody has asked for it

    def feed_block(self, block: bytes) -> None:
        """Take whole events as they stand in the stream, usually all of one network chunk."""
        self._reply = None
        if block.startswith(b"data: {"):
            rest = block.removesuffix(_DONE_EVENT)
            try:
                # A line end within valid JSON is written `\n`: what looks like the seam of two events is one.
                chunks = _decode_lines(rest[6:].replace(b"\n\ndata: ", b"\n"))
            except (msgspec.DecodeError, RecursionError):
                pass
            else:
                for chunk in chunks:
                    self._take(chunk)
                self.done_seen = self.done_seen or len(rest) < len(block)
                return
        for event in events(block):
            self.feed_event(event)

    def feed_event(self, event: bytes) -> None:
        """Take one whole event; one that is named an error is one, whatever its data."""
        if is_named_error(event):
            self._reply = None
            self.error_seen = True
        else:
            self.feed(payload(event))

    def feed(self, event_payload: bytes) -> None:
        """Take the data of one event; that of a comment, which is empty, is ignored."""
        self._reply = None
        if not event_payload:
            return
        if event_payload.strip() == _DONE:
            self.done_seen = True
            return
        try:
            chunk = _decode_line(event_payload)
        except (msgspec.DecodeError, RecursionError):
            found = self._decode_unusual(event_payload)
            if found is None:
                self.error_seen = self.error_seen or read_report(event_payload) is not None
                self.malformed_seen = not self.error_seen
                return
            chunk = found
        self._take(chunk)

    @property
    def begun(self) -> bool:
        """Whether anything of a choice has come, be it without a word."""
        return bool(self._choices)

    @property
    def over(self) -> bool:
        """Whether nothing of use can follow: `[DONE]` came, or an error, or what is no JSON."""
        return self.done_seen or self.error_seen or self.malformed_seen

    def reply(self) -> Reply:
        """Return what has come so far."""
        if self._reply is None:
            self._reply = self._collected()
        return self._reply

    def _collected(self) -> Reply:
        choices = [self._choices[index] for index in sorted(self._choices)]
        messages = [_encoded(choice.message(), self._halves) for choice in choices]
        ended = self.done_seen or (bool(choices) and all(choice.finish is not None for choice in choices))
        return Reply(
            id=self._id,
            messages=messages,
            finish=[choice.finish for choice in choices],
            usage=self._usage,
            complete=ended and not (self.error_seen or self.malformed_seen),
            empty=not any(choice.says_something() for choice in choices),
        )

    def _decode_unusual(self, event_payload: bytes) -> _Chunk | None:
        """Decode what the strict decoder refuses: halves of characters, numbers out of range, bad UTF-8."""
        try:
            fields = json.loads(event_payload.decode(errors="replace"), parse_int=lambda digits: int(digits[:4000]))
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict):
            return None
        self._halves = True
        return _Chunk(**{name: fields[name] for name in _Chunk.__struct_fields__ if name in fields})

    def _take(self, chunk: _Chunk) -> None:
        if self._id is None and isinstance(chunk.id, str):
            self._id = chunk.id
        if chunk.usage is not None:
            self._usage = read_usage(chunk.usage) or self._usage
            self.usage_event_seen = self.usage_event_seen or _is_usage(chunk)
        if chunk.error or chunk.type == "error" or chunk.object == "error":
            self.error_seen = True
        if isinstance(chunk.choices, list):
            for choice in chunk.choices:
                if isinstance(choice, dict):
                    self._take_choice(choice)

    def _take_choice(self, delta: dict[str, Any]) -> None:
        index = delta.get("index")
        if not isinstance(index, int):
            index = 0
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
        fields = delta.get("delta")
        if isinstance(fields, dict):
            choice.take(fields)
            if not self.content_seen:
                self.content_seen = _is_said(fields.get("content")) or _is_said(fields.get("refusal"))
            if fields.get("tool_calls") or fields.get("function_call"):
                self.tool_call_seen = True
        finish = delta.get("finish_reason")
        if finish not in _GOING_ON:
            self.finishes += choice.finish is None
            choice.finish = finish if isinstance(finish, str) else quote(finish).decode()


class _Choice:
    """One choice's message as it grows."""

    __slots__ = ("_by_index", "_calls", "_fields", "finish")

    def __init__(self) -> None:
        self.finish: str | None = None
        self._fields: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}

    def take(self, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if value is None:
                continue
            if name == "tool_calls" and isinstance(value, list):
                for piece in value:
                    if isinstance(piece, dict):
                        self._take_call(piece)
            elif name == "role":
                # Some servers send an empty one with every delta.
                if isinstance(value, str) and value:
                    self._fields[name] = value
            elif name in ("function_call", "audio") and isinstance(value, dict):
                _merge_inner(self._fields.setdefault(name, {}), value)
            else:
                _merge(self._fields, name, value)

    def message(self) -> dict[str, Any]:
        fields = self._fields | {"tool_calls": self._calls} if self._calls else self._fields
        return {name: _settled(value, _PIECE_LEVELS) for name, value in fields.items()}

    def says_something(self) -> bool:
        return bool(self._calls) or says_something(self.message())

    def _take_call(self, piece: dict[str, Any]) -> None:
        call = self._find_call(piece)
        for name, value in piece.items():
            if value is None or name == "index":
                continue
            if name in ("id", "type"):
                call[name] = value or call.get(name, value)
            elif name in ("function", "custom") and isinstance(value, dict):
                _merge_inner(call.setdefault(name, {}), value)
            else:
                _merge(call, name, value)

    def _find_call(self, piece: dict[str, Any]) -> dict[str, Any]:
        index, call_id = piece.get("index"), piece.get("id")
        if isinstance(index, int):
            call = self._by_index.get(index)
            if call is not None and (not call_id or call.get("id", call_id) == call_id):
                return call
            if call is None:
                return self._new_call(index)
        if call_id:
            same = [call for call in self._calls if call.get("id") == call_id]
            return same[-1] if same else self._new_call(index)
        function = piece.get("function")
        named = isinstance(function, dict) and function.get("name")
        return self._new_call(index) if named or not self._calls else self._calls[-1]

    def _new_call(self, index: Any) -> dict[str, Any]:
        call: dict[str, Any] = {}
        self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call


def _is_said(text: Any) -> bool:
    """Tell whether there is something to read in a piece of a text: blanks alone say nothing."""
    return bool(text.strip() if isinstance(text, str) else text)


def _merge(fields: dict[str, Any], name: str, value: Any) -> None:
    """Add a piece to a field, by rule 1."""
    old = fields.get(name)
    if isinstance(value, str):
        if type(old) is _Pieces:
            old.append(value)
        elif type(old) is list:
            old.append({"type": "text", "text": value})
        else:
            fields[name] = _Pieces((value,))
    elif isinstance(value, list):
        if type(old) is list:
            old.extend(value)
        elif type(old) is _Pieces:
            fields[name] = [{"type": "text", "text": "".join(old)}, *value]
        else:
            fields[name] = value
    else:
        fields[name] = value


def _merge_inner(fields: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a piece of a called function, or of a sound, to what there is of it."""
    for name, value in piece.items():
        if value is None:
            continue
        if name == "arguments" and isinstance(value, dict):
            _merge(fields, name, quote(value).decode())
        elif name == "id":
            fields[name] = value
        elif name != "name" or _settled(fields.get(name), 1) != value:
            _merge(fields, name, value)


def _settled(value: Any, levels: int) -> Any:
    """Join the pieces down to a level; what lies deeper came whole."""
    if type(value) is _Pieces:
        return "".join(value)
    if levels and isinstance(value, dict):
        return {name: _settled(inner, levels - 1) for name, inner in value.items()}
    if levels and isinstance(value, list):
        return [_settled(inner, levels - 1) for inner in value]
    return value


def _encoded(message: dict[str, Any], mend: bool) -> bytes:
    """Return the message as JSON; of one that nests deeper than a request may, only what is plain text."""
    try:
        encoded = quote(_whole_characters(message) if mend else message)
        if not is_deeper(encoded, MESSAGE_DEPTH):
            return encoded
    except RecursionError:
        pass
    return _encoded({name: value for name, value in message.items() if isinstance(value, str)}, mend)


def _whole_characters(value: Any) -> Any:
    """Join halves of characters that have met, and replace those that are alone."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_characters(name): _whole_characters(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole_characters(inner) for inner in value]
    return value


def is_usage_event(event_payload: bytes) -> bool:
    """Tell whether an event's data is the extra usage event: empty `choices` and a usage."""
    if b'"usage"' not in event_payload:
        return False
    try:
        chunk = _decode_line(event_payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return _is_usage(chunk)


def reads_whole(event_payload: bytes) -> bool:
    """Tell whether an event's data, of which the end may be missing, is all there."""
    try:
        return event_payload.strip() == _DONE or _decode_line(event_payload) is not None
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_usage(chunk: _Chunk) -> bool:
    return chunk.choices == [] and isinstance(chunk.usage, dict)
