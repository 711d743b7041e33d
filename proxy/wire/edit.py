"""Makes and joins messages as bytes: other fields, their order and the other text's own bytes stay."""

from transom.proxy.wire.raw import assemble, elements, members, quote

_BREAK = rb"\n\n"


def text_message(role: str, text: str) -> bytes:
    """Return a message of one text."""
    return assemble([("role", quote(role)), ("content", quote(text))])


def append_text(payload: bytes, text: str) -> bytes:
    """Return the message with a text after its content: in the string, or as one more part of the list."""
    return _with_content(payload, _joined(_content(payload), quote(text)))


def replace_content(payload: bytes, text: str) -> bytes:
    """Return the message with a text instead of its content; a list of parts becomes a list of one."""
    content = quote(text)
    if _content(payload).startswith(b"["):
        content = b"[" + b",".join(_parts(content)) + b"]"
    return _with_content(payload, content)


def prepend_content(front: bytes, back: bytes) -> bytes:
    """Return the message `back` with the content of `front` before its own."""
    return _with_content(back, _joined(_content(front), _content(back)))


def _content(payload: bytes) -> bytes:
    return dict(members(payload)).get("content", b"null")


def _with_content(payload: bytes, content: bytes) -> bytes:
    fields = dict(members(payload))
    fields["content"] = content
    return assemble(fields.items())


def _joined(front: bytes, back: bytes) -> bytes:
    """Join two raw contents, each a string, a list of parts, or null."""
    empty = (b"null", b'""')
    if front in empty or back in empty:
        return back if front in empty else front
    if front.startswith(b'"') and back.startswith(b'"'):
        return front[:-1] + _BREAK + back[1:]
    return b"[" + b",".join(_parts(front) + _parts(back)) + b"]"


def _parts(content: bytes) -> list[bytes]:
    if content.startswith(b'"'):
        return [assemble([("type", b'"text"'), ("text", content)])]
    return elements(content) if content.startswith(b"[") else [content]
