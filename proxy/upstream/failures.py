"""What the HTTP client's exceptions mean, as this proxy's errors; it keeps none of their texts.

They would tell addresses, and their request headers the key.
"""

import errno
import os
from collections.abc import Callable

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

from transom.proxy.errors import (
    Overloaded,
    TransomError,
    UpstreamBadResponse,
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamUnreachable,
)

__all__ = ["failure", "let_go", "unreachable"]

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

# The first row that fits decides, so the narrower stands before the wider.
MEANINGS: tuple[tuple[type[Exception], Callable[[], TransomError]], ...] = (
    (TimeoutError, UpstreamTimeout),
    (
        aiohttp.ClientConnectorDNSError,
        lambda: UpstreamUnreachable("The name of the model's server could not be resolved."),
    ),
    (
        aiohttp.ClientSSLError,
        lambda: UpstreamUnreachable(
            "No secure connection to the model's server came about; check TLS and certificates."
        ),
    ),
    (aiohttp.ClientConnectorError, UpstreamUnreachable),
    (aiohttp.InvalidURL, lambda: UpstreamUnreachable("The model's api_base is not a valid address.")),
    (
        aiohttp.ClientResponseError,
        lambda: UpstreamBadResponse(
            "The answer of the model's server is not valid HTTP, or its headers are too large."
        ),
    ),
    (
        ContentEncodingError,
        lambda: UpstreamBroken("encoding", "The answer of the model's server is not in the encoding that it names."),
    ),
    (aiohttp.ClientError, lambda: UpstreamBroken("reset")),
    (HttpProcessingError, lambda: UpstreamBroken("reset")),
    (OSError, lambda: UpstreamBroken("reset")),
)


def failure(error: Exception) -> TransomError:
    """Return the error that an exception of the HTTP client amounts to."""
    if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
        return Overloaded("The proxy has no free connections.")
    if isinstance(error, aiohttp.ClientPayloadError) and isinstance(error.__cause__, ContentEncodingError):
        error = error.__cause__
    for kind, meaning in MEANINGS:
        if isinstance(error, kind):
            return meaning()
    return UpstreamUnreachable("A header for the model's server holds characters that cannot be sent.")


def unreachable(error: Exception) -> str | None:
    """Return for the log why no connection came about, None if one did: the system's words for it, or ours."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection within the deadline"
    meaning = failure(error)
    if not isinstance(meaning, UpstreamUnreachable) or not isinstance(error, aiohttp.ClientConnectorError):
        return None
    if isinstance(error, aiohttp.ClientConnectorDNSError | aiohttp.ClientSSLError):
        return meaning.message
    number = error.os_error.errno
    return meaning.message if number is None else os.strerror(number)


def let_go(error: BaseException | None) -> None:
    """Take the traces from an exception and what led to it: their frames hold the request, and the exception again."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
