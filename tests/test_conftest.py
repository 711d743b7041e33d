import socket

import pytest


def test_an_address_beyond_loopback_fails_loudly() -> None:
    with socket.socket() as sock, pytest.raises(AssertionError, match="must not leave this machine"):
        sock.connect(("192.0.2.1", 80))


def test_a_name_of_another_machine_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="must not leave this machine"):
        socket.getaddrinfo("example.com", 80)


def test_an_invalid_name_fails_as_an_unknown_one() -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("nowhere.invalid", 80)


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()
