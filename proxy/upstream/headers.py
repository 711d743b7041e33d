"""Which headers travel: up by allow-list, back by allow-list; it does not know who sends them.

Authorization is not a header here: the adapter sets it from the model's key or the client's.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from transom.proxy.config.settings import Model

__all__ = ["is_event_stream", "request_headers", "response_headers"]

UP = frozenset(
    {
        b"accept",
        b"content-type",
        b"user-agent",
        b"traceparent",
        b"tracestate",
        b"x-request-id",
        b"openai-beta",
        b"anthropic-beta",
        b"http-referer",
        b"x-title",
    }
)
UP_WITH_CLIENT_KEY = frozenset({b"openai-organization", b"openai-project"})
UP_FIRST_ATTEMPT = frozenset({b"idempotency-key"})
UP_PREFIX = b"x-stainless-"
# Not even a model's `forward_headers` can name these: they frame the message, prove an identity or tell the route.
NEVER_UP = frozenset(
    {
        b"host",
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
        b"content-length",
        b"content-encoding",
        b"accept-encoding",
        b"authorization",
        b"proxy-authorization",
        b"cookie",
        b"x-transom-key",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)

BACK = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
BACK_PREFIXES = ("x-ratelimit-", "openai-")
RETRY_AFTER_CAP_S = 3600
UNITS_PER_S = {"retry-after": 1, "retry-after-ms": 1000}


@lru_cache(maxsize=256)
def _allowed(forward: tuple[str, ...], client_key: bool, first_attempt: bool) -> frozenset[bytes]:
    names = UP | {name.lower().encode("latin-1") for name in forward}
    if client_key:
        names |= UP_WITH_CLIENT_KEY
    if first_attempt:
        names |= UP_FIRST_ATTEMPT
    else:
        names -= UP_FIRST_ATTEMPT
    return frozenset(names - NEVER_UP)


def request_headers(
    received: Iterable[tuple[bytes, bytes]], model: Model, *, client_key: bool, first_attempt: bool = True
) -> list[tuple[str, str]]:
    """Return the headers of a client's request that go up to a model.

    Args:
        received: as ASGI gives them, names in lower case.
        model: its `forward_headers` go up too.
        client_key: whether the client's own bearer goes up, and its organisation and project with it.
        first_attempt: False for retries with another body and for summary calls, which must not carry the
            client's idempotency key.
    """
    allowed = _allowed(model.forward_headers, client_key, first_attempt)
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in received
        if name in allowed or name.startswith(UP_PREFIX)
    ]


def response_headers(received: Mapping[str, str], *, request_id: bool = True) -> list[tuple[bytes, bytes]]:
    """Return the headers of an upstream's answer that go back to the client, as ASGI takes them.

    Args:
        received: names in lower case.
        request_id: False when the client sent an id of its own, which then has the last word.
    """
    passed = []
    for name, value in received.items():
        if name in BACK or name.startswith(BACK_PREFIXES) or (request_id and name == "x-request-id"):
            shown = _capped(value, UNITS_PER_S[name]) if name in UNITS_PER_S else value
            if shown:
                passed.append((name.encode("latin-1"), shown.encode("latin-1", "replace")))
    return passed


def is_event_stream(received: Mapping[str, str]) -> bool:
    """Tell whether an answer says that it is server-sent events."""
    return received.get("content-type", "").lower().startswith("text/event-stream")


def _capped(value: str, units_per_s: int) -> str:
    """Return a waiting time of at most an hour; empty if it is neither a number nor a date (RFC 9110, 10.2.3)."""
    cap = str(RETRY_AFTER_CAP_S * units_per_s)
    try:
        number = float(value)
    except ValueError:
        return _capped_date(value, cap)
    if math.isnan(number) or number < 0:
        return ""
    return value if number <= RETRY_AFTER_CAP_S * units_per_s else cap


def _capped_date(value: str, cap: str) -> str:
    try:
        date = parsedate_to_datetime(value)
        wait_s = (date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return ""
    return value if wait_s.total_seconds() <= RETRY_AFTER_CAP_S else cap
