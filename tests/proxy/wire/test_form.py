"""A form's field is read as every other reader reads it, and replaced without touching anything else."""

from email import message_from_bytes
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.errors import BadRequest
from transom.proxy.wire.form import MOST_PARTS, Form, is_form

TYPE = "multipart/form-data; boundary=b"


def part(disposition: bytes, content: bytes = b"x", *headers: bytes) -> bytes:
    lines = [b"--b", b"Content-Disposition: form-data; " + disposition, *headers, b"", content, b""]
    return b"\r\n".join(lines)


def whole(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


MODEL = part(b'name="model"', b"mine")


# How clients write their parts: httpx, undici and curl; .NET; Go; aiohttp; urllib3.
@pytest.mark.parametrize(
    "other",
    [
        part(b'name="file"; filename="a.mp3"', b"\x00\xff\r\n\r\n--a\r\n", b"Content-Type: audio/mpeg"),
        part(b"name=file; filename=a.mp3; filename*=utf-8''a.mp3"),
        part(b'name="file"; filename="a\\"b.mp3"'),
        part(b'name="file"; filename="%C3%A9.mp3"; filename*=utf-8\'\'%C3%A9.mp3'),
        part('name="file"; filename="é.mp3"'.encode()),
        part(b'name="timestamp_granularities[]"', b"word"),
        part(b'name="empty"', b""),
        part(b'name="twice"') + part(b'name="twice"'),
        b"",
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        part(b"name=model", b"mine", b"Content-Type: text/plain; charset=utf-8"),
        part(b'name="model"', b"mine", b"Content-Type: text/plain", b"Content-Length: 4"),
        part(b'name="model"', b"mine", b"content-transfer-encoding: 8bit"),
    ],
)
def test_the_field_is_found_and_replaced(other: bytes, model: bytes) -> None:
    for body in (whole(model, other), whole(other, model)):
        form = Form(body, TYPE, "model")
        assert form.value == "mine"
        assert form.with_value("model", "theirs ü") == body.replace(model, part(b'name="model"', "theirs ü".encode()))


def test_a_form_without_the_field() -> None:
    assert Form(whole(part(b'name="models"')), TYPE, "model").value is None


@pytest.mark.parametrize(
    "kind", [TYPE, 'multipart/form-data; charset=x; boundary="b"', "Multipart/Form-Data;BOUNDARY=b"]
)
def test_the_boundary(kind: str) -> None:
    assert is_form(kind)
    assert Form(whole(MODEL), kind, "model").value == "mine"
    assert Form(whole(MODEL).removesuffix(b"\r\n"), kind, "model").value == "mine"


@pytest.mark.parametrize("boundary", ["", '""', "b;boundary=c", '"b\\"', "b" * 71, "é", '"b "', "*=utf-8''b"])
def test_boundaries_that_are_none(boundary: str) -> None:
    with pytest.raises(BadRequest):
        Form(whole(MODEL), f"multipart/form-data; boundary={boundary}".replace("boundary=*", "boundary*"), "model")


def test_the_number_of_parts_is_bounded() -> None:
    assert Form(whole(*[part(b"name=x")] * (MOST_PARTS - 1), MODEL), TYPE, "model").value == "mine"
    with pytest.raises(BadRequest, match="1,000 parts"):
        Form(whole(*[part(b"name=x")] * MOST_PARTS, MODEL), TYPE, "model")


def test_a_name_is_short() -> None:
    with pytest.raises(BadRequest):
        Form(whole(part(b"name=model", b"x" * 2000)), TYPE, "model")
    with pytest.raises(BadRequest):
        Form(whole(part(b"name=model", b"\xff")), TYPE, "model")


PIECES = [b"--b", b"--", b"\r\n", b"\n", b"\r", b"\r\n--b\r\n", b"\r\n\r\n", b"b", b";", b'"', b"\\", b"x: y"]
NAMES = [b'Content-Disposition: form-data; name="model"', b'name="model"', b"; name*=utf-8''model", b"mine", b"theirs"]
pieces = st.sampled_from(PIECES + NAMES)


@given(st.lists(pieces, max_size=30))
def test_whatever_is_accepted_python_reads_in_the_same_way(found: list[bytes]) -> None:
    for body in (b"".join(found), whole(MODEL, b"".join(found)), MODEL + b"".join(found)):
        try:
            form = Form(body, TYPE, "model")
        except BadRequest:
            continue
        message = message_from_bytes(b"Content-Type: " + TYPE.encode() + b"\r\n\r\n" + body)
        parts = message.get_payload()
        assert isinstance(parts, list)
        values = [_content(p) for p in parts if p.get_param("name", header="content-disposition") == "model"]
        assert values == ([] if form.value is None else [form.value])


def _content(part: Message) -> str:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()
