import pytest

from transom.proxy.config.settings import Model
from transom.proxy.errors import UpstreamAuth
from transom.proxy.upstream.auth import error_code, error_reply, redact_bytes

KEY = "upstream-key-0123456789abcdef"
TEAM = "team-secret-0123456789"
MODEL = Model(name="m", provider="direct", upstream_model="m", api_key=KEY, extra_headers={"x-team": TEAM})
QUOTING = b'{"error":{"message":"Incorrect API key provided: %b."}}'


def test_u23_our_key_refused_is_the_operators_matter_and_shows_nothing() -> None:
    with pytest.raises(UpstreamAuth) as caught:
        error_reply(401, QUOTING % KEY.encode(), model=MODEL, bearer=None)

    assert KEY not in caught.value.message
    assert "refused the configured API key" in caught.value.message
    assert caught.value.status == 502


def test_where_no_key_is_configured_the_error_says_so() -> None:
    keyless = Model(name="m", provider="direct", upstream_model="m")
    assert error_reply(403, b"{}", model=keyless, bearer=None) == b"{}"

    with pytest.raises(UpstreamAuth) as caught:
        error_reply(401, b"{}", model=keyless, bearer=None)

    assert caught.value.status == 502
    assert "none is configured for this model" in caught.value.message
    assert "api_key" in caught.value.message
    assert "upstream_key: client" in caught.value.message


def test_a_key_of_the_environment_is_not_called_missing() -> None:
    through_litellm = Model(name="m", provider="litellm", upstream_model="anthropic/m")

    with pytest.raises(UpstreamAuth) as caught:
        error_reply(401, b"{}", model=through_litellm, bearer=None)

    assert "none is configured" not in caught.value.message
    assert error_reply(403, b"{}", model=through_litellm, bearer=None) == b"{}"


@pytest.mark.parametrize("status", [401, 403, 429])
def test_the_clients_own_key_is_between_it_and_the_upstream(status: int) -> None:
    body = QUOTING % b"sk-cli****nt01"

    assert error_reply(status, body, model=MODEL, bearer="sk-client-key-0001") == body


@pytest.mark.parametrize("status", [400, 403, 404, 500])
@pytest.mark.parametrize("secret", [KEY, TEAM, "upstre*****cdef"])
def test_u24_other_errors_pass_without_the_key(status: int, secret: str) -> None:
    shown = error_reply(status, QUOTING % secret.encode(), model=MODEL, bearer=None)

    assert shown == QUOTING % b"[redacted]"


def test_an_error_without_a_key_passes_byte_for_byte() -> None:
    body = b'{"error": {"message":"caf\xe9 \xff\xfe \xe2\x82\xac"}}\r\n'

    assert error_reply(403, body, model=MODEL, bearer=None) == body


def test_bytes_around_a_key_stay() -> None:
    assert redact_bytes(b"\xff" + KEY.encode() + b"\xfe", [KEY]) == b"\xff[redacted]\xfe"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error":{"message":"m","type":"t","code":"rate_limit_exceeded"}}', "rate_limit_exceeded"),
        (b'{"error":{"message":"m","type":"overloaded_error","code":null}}', "overloaded_error"),
        (b'{"error":{"type":"t","code":"sk-0123456789"}}', "t"),
        (b'{"error":{"code":429,"type":"What the user said"}}', "upstream_error"),
        (b'{"error":"text"}', "upstream_error"),
        (b"<html>", "upstream_error"),
        (b'{"error":{"code":"\xff"}}', "upstream_error"),
    ],
)
def test_the_log_gets_one_plain_word_of_an_upstreams_error(body: bytes, code: str) -> None:
    assert error_code(body) == code
