import errno
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http_exceptions import BadStatusLine

from transom.proxy.errors import (
    Overloaded,
    TransomError,
    UpstreamBadResponse,
    UpstreamBroken,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from transom.proxy.upstream.failures import failure, unreachable

SECRET = "host-or-key-that-must-not-show"
KEY = ConnectionKey(SECRET, 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (aiohttp.ConnectionTimeoutError(SECRET), UpstreamTimeout),
        (TimeoutError(SECRET), UpstreamTimeout),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, SECRET)), UpstreamUnreachable),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(SECRET)), UpstreamUnreachable),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, SECRET)), UpstreamUnreachable),
        (aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError(SECRET)), UpstreamUnreachable),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.EMFILE, SECRET)), Overloaded),
        (OSError(errno.ENFILE, SECRET), Overloaded),
        (aiohttp.InvalidURL(SECRET), UpstreamUnreachable),
        (ValueError(SECRET), UpstreamUnreachable),
        (aiohttp.ServerDisconnectedError(SECRET), UpstreamBroken),
        (aiohttp.ClientOSError(errno.EPIPE, SECRET), UpstreamBroken),
        (aiohttp.ClientPayloadError(SECRET), UpstreamBroken),
        (BadStatusLine(SECRET), UpstreamBadResponse),
        (OSError(errno.ECONNRESET, SECRET), UpstreamBroken),
    ],
)
def test_what_it_means_and_that_it_tells_nothing(error: Exception, meaning: type[TransomError]) -> None:
    found = failure(error)

    assert isinstance(found, meaning)
    assert SECRET not in found.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (aiohttp.ConnectionTimeoutError(SECRET), "no connection within the deadline"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, SECRET)), "Connection refused"),
        (aiohttp.ClientConnectorError(KEY, OSError(SECRET)), "The model's server could not be reached."),
        (
            aiohttp.ClientConnectorDNSError(KEY, OSError(SECRET)),
            "The name of the model's server could not be resolved.",
        ),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError(SECRET)),
            "No secure connection to the model's server came about; check TLS and certificates.",
        ),
    ],
)
def test_the_log_is_told_why_no_connection_came_about(error: Exception, reason: str) -> None:
    assert unreachable(error) == reason


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(SECRET),
        aiohttp.ServerDisconnectedError(SECRET),
        aiohttp.ClientConnectorError(KEY, OSError(errno.EMFILE, SECRET)),
        OSError(errno.ECONNRESET, SECRET),
    ],
)
def test_an_upstream_that_was_reached_is_not_called_unreachable(error: Exception) -> None:
    assert unreachable(error) is None
