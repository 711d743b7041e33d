"""Who counts as somebody on this machine, in the spellings that no test can send over loopback."""

import pytest

from transom.proxy.auth import bearer_of, is_local


@pytest.mark.parametrize(
    ("peer", "host", "local"),
    [
        ("127.0.0.1", b"127.0.0.1:8000", True),
        ("127.1.2.3", b"localhost", True),
        ("::1", b"[::1]:8000", True),
        ("::1", b"[::1]", True),
        ("10.0.0.1", b"127.0.0.1", False),
        ("::ffff:10.0.0.1", b"localhost", False),
        ("127.0.0.1", b"localhost.evil.example", False),
        ("127.0.0.1", b"127.0.0.1.evil.example", False),
        ("127.0.0.1", b"[::1", False),
        ("127.0.0.1", b"0.0.0.0", False),
        ("127.0.0.1", b"", False),
        ("", b"localhost", False),
    ],
)
def test_loopback(peer: str, host: bytes, local: bool) -> None:
    assert is_local({"client": (peer, 1)}, {b"host": host}) is local


def test_a_peer_that_is_not_known_is_not_local() -> None:
    assert not is_local({"client": None}, {b"host": b"localhost"})


@pytest.mark.parametrize(
    ("value", "bearer"),
    [
        (b"Bearer abc", "abc"),
        (b"bearer  abc ", "abc"),
        (b"BEARER \xff", "\xff"),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Basic abc", None),
        (b"abc", None),
    ],
)
def test_bearers(value: bytes, bearer: str | None) -> None:
    assert bearer_of({b"authorization": value}) == bearer
