"""Finds one field of a multipart form and replaces its value; every other byte of the form stays as it is.

Who decides by a field must read it as the upstream will. So only forms are read that nobody reads in two ways
(RFC 2046, 5.1; RFC 7578):

1. Lines end with CRLF; nothing stands before the first boundary, and nothing but a line end after the last.
2. Every part has one Content-Disposition, `form-data`, with a name and perhaps a file name, each at most once.
3. The field that is looked for comes at most once, and is UTF-8 as it stands.
"""

import re
from email.message import Message

from transom.proxy.errors import BadRequest

__all__ = ["Form", "is_form"]

MOST_PARTS = 1_000
NAME_BYTES = 1_024  # of the value that is looked for

_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\r\n]*)")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = rb'(?:"(?:[^"\\\r\n]|\\[^\r\n])*"|%b)' % _TOKEN
_DISPOSITION = re.compile(
    rb"form-data;[ \t]*name=(?P<name>%b)"
    rb"(?:;[ \t]*filename=(?P<file>%b))?(?:;[ \t]*filename\*=(?P<file_too>[^\s;]+))?[ \t]*" % (_VALUE, _VALUE),
    re.IGNORECASE,
)
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")  # RFC 2046, 5.1.1
_TEXT = re.compile(rb'text/plain(?:;[ \t]*charset="?(?:utf-8|us-ascii)"?)?[ \t]*', re.IGNORECASE)
_PLAIN = re.compile(rb"(?:7bit|8bit|binary)[ \t]*", re.IGNORECASE)


def is_form(content_type: str) -> bool:
    """Tell whether a content type is that of a multipart form."""
    return content_type.lstrip().lower().startswith("multipart/form-data")


class Form:
    """Hold a form, and where in it a field's part stands.

    Raises:
        BadRequest: it is no form, or one that might be read in several ways.
    """

    __slots__ = ("_end", "_start", "body", "value")

    def __init__(self, body: bytes, content_type: str, field: str) -> None:
        self.body = body
        self._start = self._end = 0
        self.value: str | None = None
        delimiter = b"--" + _boundary(content_type)
        for start, end in _parts(body, delimiter):
            name, head_end, plain = _read_head(body, start, end)
            if name != field.encode():
                continue
            if self.value is not None or not plain or end - head_end > NAME_BYTES:
                raise BadRequest(f"The form must hold `{field}` once, as plain text.", param=field)
            self._start, self._end = start, end
            self.value = _text(body[head_end:end], field)

    def with_value(self, field: str, value: str) -> bytes:
        """Return the form with another value of the field; only its part is written anew."""
        part = b'Content-Disposition: form-data; name="%b"\r\n\r\n%b' % (field.encode(), value.encode())
        return self.body[: self._start] + part + self.body[self._end :]


def _boundary(content_type: str) -> bytes:
    message = Message()
    message["content-type"] = content_type
    names = [name for name, _ in message.get_params(failobj=[])[1:]]
    boundary = message.get_param("boundary")
    if names.count("boundary") != 1 or not isinstance(boundary, str) or not _BOUNDARY.fullmatch(boundary):
        raise BadRequest("The form's Content-Type must name its boundary.", param="body")
    return boundary.encode()


def _parts(body: bytes, delimiter: bytes) -> list[tuple[int, int]]:
    """Return where each part begins and ends, headers included."""
    found: list[tuple[int, int]] = []
    if not body.startswith(delimiter):
        raise _malformed()
    after = len(delimiter)
    while body.startswith(b"\r\n", after):
        if len(found) >= MOST_PARTS:
            raise BadRequest(f"A form may hold at most {MOST_PARTS:,} parts.", param="body")
        # The line end before a boundary is the boundary's; in an empty part without headers it is the same one.
        end = body.find(b"\r\n" + delimiter, after)
        if end < 0:
            raise _malformed()
        found.append((after + 2, end))
        after = end + 2 + len(delimiter)
    if body[after:] not in (b"--", b"--\r\n"):
        raise _malformed()
    return found


def _read_head(body: bytes, start: int, end: int) -> tuple[bytes, int, bool]:
    """Return a part's name, where its content begins, and whether that is the plain text of a field."""
    head_end = body.find(b"\r\n\r\n", start, end)
    if head_end < 0:
        raise _malformed()
    headers: dict[bytes, bytes] = {}
    for line in body[start:head_end].split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in headers:
            raise _malformed()
        headers[header[1].lower()] = header[2]
    disposition = _DISPOSITION.fullmatch(headers.get(b"content-disposition", b""))
    if disposition is None or b"\\" in disposition["name"]:
        raise _malformed()
    plain = (
        disposition["file"] is None
        and disposition["file_too"] is None
        and _TEXT.fullmatch(headers.get(b"content-type", b"text/plain")) is not None
        and _PLAIN.fullmatch(headers.get(b"content-transfer-encoding", b"8bit")) is not None
    )
    return disposition["name"].removeprefix(b'"').removesuffix(b'"'), head_end + 4, plain


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"`{field}` is not valid UTF-8.", param=field) from None


def _malformed() -> BadRequest:
    return BadRequest("The multipart form is malformed.", param="body")
