"""What holds for every test: the network ends at loopback, and no time is measured."""

import gc
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Let the garbage collector not look again and again at what was imported and collected: it stays."""
    gc.collect()
    gc.freeze()


def _is_local(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    text = host.decode() if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> Iterator[None]:
    """Fail any test that looks up or connects to something beyond this machine.

    Names under `.invalid`, which exist nowhere by RFC 2606, fail as an unknown name does.
    """
    getaddrinfo, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex

    def guarded_lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if not _is_local(host):
            raise AssertionError(f"a test looked up {host!r}: tests must not leave this machine")
        return getaddrinfo(host, *args, **kwargs)

    def guard(inner: Any) -> Any:
        def guarded(sock: socket.socket, address: Any) -> Any:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
                raise AssertionError(f"a test connected to {address!r}: tests must not leave this machine")
            return inner(sock, address)

        return guarded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", guarded_lookup)
        patch.setattr(socket.socket, "connect", guard(connect))
        patch.setattr(socket.socket, "connect_ex", guard(connect_ex))
        yield
