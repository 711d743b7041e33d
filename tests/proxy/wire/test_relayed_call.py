"""A body is sent as what it was read as, whatever else its content type says."""

import pytest

from transom.proxy.wire.relayed import JSON, parse_relayed

BODY = b'{"model":"mine","input":"&model=other&x="}'


@pytest.mark.parametrize(
    ("content_type", "sent"),
    [
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
        ("application/vnd.api+json", "application/vnd.api+json"),
        ("application/x-www-form-urlencoded; a=json", JSON),
        ("multipart/mixed; json; boundary=X", JSON),
        ("text/plain", JSON),
    ],
)
def test_what_was_read_as_json_is_sent_as_json(content_type: str, sent: str) -> None:
    assert parse_relayed(BODY, content_type, any_type=False).content_type == sent
