from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from transom.proxy.config.settings import Model
from transom.proxy.upstream.headers import is_event_stream, request_headers, response_headers


def model(*forward: str) -> Model:
    return Model(name="m", provider="direct", upstream_model="m", forward_headers=forward)


def names(received: list[tuple[bytes, bytes]], to: Model, **how: bool) -> set[str]:
    return {name for name, _ in request_headers(received, to, client_key=how.pop("client_key", False), **how)}


UP = [
    "accept",
    "content-type",
    "user-agent",
    "traceparent",
    "tracestate",
    "x-request-id",
    "openai-beta",
    "anthropic-beta",
    "x-stainless-lang",
    "x-stainless-retry-count",
    "idempotency-key",
    "http-referer",
    "x-title",
]
NOT_UP = [
    "host",
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "connection",
    "transfer-encoding",
    "content-length",
    "content-encoding",
    "accept-encoding",
    "x-session-id",
    "x-transom-key",
    "x-transom-policy",
    "openai-organization",
    "openai-project",
    "x-api-key",
    "anything",
]


def test_only_what_is_on_the_list_goes_up() -> None:
    received = [(name.encode(), b"1") for name in (*UP, *NOT_UP)]

    assert names(received, model()) == set(UP)


def test_values_go_up_in_their_order_and_repeated() -> None:
    received = [(b"x-title", b"caf\xe9"), (b"accept", b"a"), (b"accept", b"b")]

    assert request_headers(received, model(), client_key=False) == [
        ("x-title", "café"),
        ("accept", "a"),
        ("accept", "b"),
    ]


def test_organisation_and_project_go_with_the_clients_own_key() -> None:
    received = [(b"openai-organization", b"o"), (b"openai-project", b"p")]

    assert names(received, model(), client_key=True) == {"openai-organization", "openai-project"}


def test_the_idempotency_key_goes_with_the_first_attempt_only() -> None:
    received = [(b"idempotency-key", b"1"), (b"accept", b"*/*")]

    assert names(received, model("Idempotency-Key"), first_attempt=False) == {"accept"}


def test_a_model_may_name_more_but_no_identity_and_no_framing() -> None:
    received = [
        (name.encode(), b"1") for name in ("x-tenant", "cookie", "authorization", "content-length", "x-forwarded-for")
    ]
    to = model("X-Tenant", "Cookie", "Authorization", "Content-Length", "X-Forwarded-For")

    assert names(received, to) == {"x-tenant"}


def test_what_comes_back() -> None:
    received = {
        "content-type": "application/json",
        "x-ratelimit-remaining-tokens": "9",
        "openai-processing-ms": "12",
        "x-request-id": "req_1",
        "x-should-retry": "false",
        "set-cookie": "a=1",
        "server": "x",
        "content-length": "5",
        "content-encoding": "gzip",
        "location": "/",
        "access-control-allow-origin": "*",
    }

    assert {name for name, _ in response_headers(received)} == {
        b"content-type",
        b"x-ratelimit-remaining-tokens",
        b"openai-processing-ms",
        b"x-request-id",
        b"x-should-retry",
    }


def test_a_clients_own_request_id_has_the_last_word() -> None:
    assert response_headers({"x-request-id": "theirs"}, request_id=False) == []


def from_now(**ahead: int) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(**ahead), usegmt=True)


@pytest.mark.parametrize(
    "value",
    ["0", "20", "1.5", "3600", from_now(minutes=5), from_now(days=-1)],
    ids=["0", "20", "1.5", "3600", "soon", "past"],
)
def test_u21_a_sensible_retry_after_passes_as_it_is(value: str) -> None:
    assert response_headers({"retry-after": value}) == [(b"retry-after", value.encode())]


@pytest.mark.parametrize(
    "value",
    ["3601", "99999999999999999999", "1e400", "inf", from_now(days=400)],
    ids=["3601", "20 digits", "1e400", "inf", "a date"],
)
def test_u21_an_absurd_one_is_capped(value: str) -> None:
    assert response_headers({"retry-after": value}) == [(b"retry-after", b"3600")]


@pytest.mark.parametrize("value", ["", "soon", "-5", "nan", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_u21_nonsense_is_dropped(value: str) -> None:
    assert response_headers({"retry-after": value}) == []


def test_u21_milliseconds_are_capped_alike() -> None:
    assert response_headers({"retry-after-ms": "250"}) == [(b"retry-after-ms", b"250")]
    assert response_headers({"retry-after-ms": "9999999"}) == [(b"retry-after-ms", b"3600000")]


@pytest.mark.parametrize(
    ("content_type", "stream"),
    [("text/event-stream", True), ("Text/Event-Stream; charset=utf-8", True), ("application/json", False), ("", False)],
)
def test_u18_what_kind_of_answer_it_is(content_type: str, stream: bool) -> None:
    assert is_event_stream({"content-type": content_type}) is stream


def test_no_content_type_is_no_stream() -> None:
    assert not is_event_stream({})
