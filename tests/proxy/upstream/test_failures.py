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
from transom.proxy.upstream.failures import failure

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
