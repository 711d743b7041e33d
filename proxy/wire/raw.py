"""JSON as bytes: members and elements as raw slices, nesting, half surrogates; it knows no field's meaning."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec


class _Key:
    """A key that equals only itself, so that a dict keeps every member of an object, repeated names too."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _key(_: type, name: Any) -> _Key:
    return _Key(name)


_OBJECT = msgspec.json.Decoder(dict[_Key, msgspec.Raw], dec_hook=_key)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
quote = msgspec.json.encode

# A surrogate escape, or a pair of them. A search for these bytes does not see whether the backslash is itself escaped.
_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})|[89a-fA-F][0-9a-fA-F]{2})")
_REPLACEMENT = rb"\ufffd"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SLOPE = re.compile(rb"(\[+)\]*")
_FOLD = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Up to this size strings are left out by one search, during which no other thread has its turn.
AT_ONCE = 262_144

_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_OPENING = re.compile(rb"\[[ \t\r\n]*")
_CLOSING = re.compile(rb"[ \t\r\n]*\]$")


def members(raw: bytes) -> list[tuple[str, bytes]]:
    """Split an object into its names and raw values, in order, repeated names included.

    Strings inside the values are not checked to be UTF-8.

    Raises:
        msgspec.ValidationError: JSON, but not an object.
        msgspec.DecodeError: not JSON, or with half surrogates.
        RecursionError: nested some hundred levels deep.
    """
    return [(key.name, bytes(value)) for key, value in _OBJECT.decode(raw).items()]


def elements(raw: bytes, known: list[bytes] | None = None) -> list[bytes]:
    """Split an array into its raw elements.

    Args:
        raw: a JSON array, without white space around it.
        known: the elements (objects) of an earlier array; where this one begins with the same bytes, only what
            follows is parsed.

    Raises:
        msgspec.DecodeError: as in `members`.
    """
    if known:
        start = _after_opening(raw)
        gap = _COMMA.match(raw, start + len(known[0]))
        head = (gap[0] if gap else b",").join(known)
        if raw.startswith(head, start):
            end = start + len(head)
            if _CLOSING.match(raw, end):
                return known.copy()
            if more := _COMMA.match(raw, end):
                return known + elements(b"[" + raw[more.end() :])
    return list(map(bytes, _ARRAY.decode(raw)))


def _after_opening(raw: bytes) -> int:
    opening = _OPENING.match(raw)
    return opening.end() if opening else 0


def assemble(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """Join names and raw values into an object."""
    return b"{" + b",".join([quote(name) + b":" + value for name, value in fields]) + b"}"


def mend_surrogates(raw: bytes) -> bytes:
    r"""Replace each half surrogate escape by `\ufffd`; the length stays."""
    return _SURROGATE.sub(_mended, raw)


def _mended(found: re.Match[bytes]) -> bytes:
    if _backslashes_before(found.string, found.start()) % 2:
        # The first backslash is text, so what looked like the second half is alone.
        return found[0][:6] + _REPLACEMENT if found[1] else found[0]
    return found[0] if found[1] else _REPLACEMENT


def _backslashes_before(raw: bytes, end: int) -> int:
    """Count the run that ends there, looking at as little as need be: runs may be long, and escapes many."""
    if not raw.endswith(b"\\", 0, end):
        return 0
    width, run = 4, 0
    while run < end:
        piece = raw[max(0, end - width) : end]
        run = len(piece) - len(piece.rstrip(b"\\"))
        if run < len(piece):
            break
        width *= 8
    return run


def is_utf8(raw: bytes) -> bool:
    """Tell whether the bytes are well-formed UTF-8."""
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_deeper(raw: bytes, levels: int) -> bool:
    """Tell whether valid JSON nests deeper than so many arrays and objects."""
    if len(raw) <= 2 * levels or raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    if len(raw) <= AT_ONCE:
        return _slopes_deeper(raw, levels)
    if not raw.startswith((b"[", b"{")):
        return False
    try:
        parts = [value for _, value in members(raw)] if raw.startswith(b"{") else elements(raw)
    except msgspec.DecodeError:  # half a surrogate, or a name that is not UTF-8: whoever reads it will tell
        return _slopes_deeper(raw, levels)
    return levels == 0 or any(is_deeper(part, levels - 1) for part in parts)


def _slopes_deeper(raw: bytes, levels: int) -> bool:
    brackets = _STRING.sub(b"", raw).translate(_FOLD, _NOT_BRACKETS)
    level = 0
    for slope in _SLOPE.finditer(brackets):
        top = slope.end(1)
        level += top - slope.start()
        if level > levels:
            return True
        level -= slope.end() - top
    return False
