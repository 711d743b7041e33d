"""What exceptions mean, and what of them is not told."""

import errno
import gc
import socket
import ssl
import weakref

import pytest

from transom.proxy.errors import Overloaded, UpstreamUnreachable
from transom.proxy.upstream.failures import NO_NAME, NO_TLS, let_go, meaning

SECRET = "10.1.2.3 sk-secret"


@pytest.mark.parametrize(
    ("raised", "error", "reason"),
    [
        (OSError(errno.ECONNREFUSED, SECRET), UpstreamUnreachable, "Connection refused"),
        (OSError(errno.EHOSTUNREACH, SECRET), UpstreamUnreachable, "No route to host"),
        (OSError(SECRET), UpstreamUnreachable, UpstreamUnreachable.sentence),
        (ValueError(SECRET), UpstreamUnreachable, UpstreamUnreachable.sentence),
        (socket.gaierror(socket.EAI_NONAME, SECRET), UpstreamUnreachable, NO_NAME),
        (UnicodeError(SECRET), UpstreamUnreachable, NO_NAME),
        (ssl.SSLError(1, SECRET), UpstreamUnreachable, NO_TLS),
        (ssl.SSLCertVerificationError(1, SECRET), UpstreamUnreachable, NO_TLS),
        (OSError(errno.EMFILE, SECRET), Overloaded, "The proxy has no free connections."),
        (OSError(errno.ENFILE, SECRET), Overloaded, "The proxy has no free connections."),
    ],
)
def test_what_keeps_a_connection_from_coming_about(raised: OSError | ValueError, error: type, reason: str) -> None:
    found, told = meaning(raised)

    assert type(found) is error
    assert told == reason
    assert "secret" not in found.message + told


def test_a_trace_lets_go_of_what_it_held() -> None:
    class Held:
        pass

    def fail() -> weakref.ref[Held]:
        held = Held()
        try:
            raise ValueError
        except ValueError as cause:
            kept.append(cause)
        return weakref.ref(held)

    kept: list[ValueError] = []
    gc.disable()
    try:
        held = fail()
        assert held() is not None
        let_go(kept[0])
        assert held() is None
    finally:
        gc.enable()
