"""Reads which model a relayed request names, in JSON or in a form, and writes another name in its place.

It knows no endpoint and reads nothing else; what is not changed keeps its bytes.
"""

import asyncio
from dataclasses import dataclass, field

from transom.proxy.errors import BadRequest
from transom.proxy.wire.chat import check_field, lenient, split_body, takes_long
from transom.proxy.wire.form import Form, is_form
from transom.proxy.wire.raw import assemble, quote

__all__ = ["RelayedCall", "parse_relayed", "parse_relayed_off_loop"]

FIELD = "model"
JSON = "application/json"
MANY_ESCAPES = 50_000  # half surrogates among them are mended one at a time


@dataclass(slots=True)
class RelayedCall:
    """A request as far as it is read.

    Attributes:
        body: as it is sent, but for the model's name; of repeated JSON fields the last value.
        content_type: what the body was read as; None where it was not read.
        model: the name in it, if there is one.
    """

    body: bytes
    content_type: str | None = None
    model: str | None = None
    _fields: dict[str, bytes] = field(default_factory=dict, repr=False)
    _form: Form | None = field(default=None, repr=False)

    def named(self, model: str) -> bytes:
        """Return the body with the upstream's name of the model; the same bytes where the name is the same."""
        if self.model is None or model == self.model:
            return self.body
        if self._form is not None:
            return self._form.with_value(FIELD, model)
        return assemble((self._fields | {FIELD: quote(model)}).items())


def parse_relayed(body: bytes, content_type: str, *, any_type: bool) -> RelayedCall:
    """Read a request body.

    Args:
        body: all of it.
        content_type: as the client wrote it. What calls itself neither a form nor JSON is read as JSON, too.
        any_type: pass such a body on unread instead, and one that is empty.

    Raises:
        BadRequest: neither a form that can be read in one way only nor a JSON object; `model` is no string.
    """
    if is_form(content_type):
        form = Form(body, content_type, FIELD)
        return RelayedCall(body, content_type, _name(form.value), _form=form)
    is_json = "json" in content_type.partition(";")[0].lower()
    if any_type and not (body and is_json):
        return RelayedCall(body)
    body, pairs = split_body(body)
    fields = dict(pairs)
    for name, value in fields.items():
        check_field(name, value)
    return RelayedCall(
        body=body if len(fields) == len(pairs) else assemble(fields.items()),
        content_type=content_type if is_json else JSON,
        model=_name(lenient(fields.get(FIELD))),
        _fields=fields,
    )


async def parse_relayed_off_loop(body: bytes, content_type: str, *, any_type: bool) -> RelayedCall:
    """Do as `parse_relayed`, in a thread when the body is larger than 1 MB, dense, or may have much to be mended."""
    if takes_long(body) or body.count(b"\\") > MANY_ESCAPES:
        return await asyncio.to_thread(parse_relayed, body, content_type, any_type=any_type)
    return parse_relayed(body, content_type, any_type=any_type)


def _name(value: object) -> str | None:
    """Return the name of a model; null is none."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise BadRequest("`model` must be a non-empty string.", param=FIELD)
    return value
