"""What all tests of the proxy share: what takes a second to make, for each server anew, is made once or not at all."""

from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import pytest

from transom.proxy.tokens import Tokenizer


class Untouched:
    """Leaves the garbage collector its own rhythm: one look at all that a test process holds takes a second."""

    def begin(self, now: float) -> None:
        pass

    def tick(self, now: float, *, busy: bool) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.fixture(scope="session", autouse=True)
def one_tokenizer() -> Iterator[None]:
    """Read the encoding once for all proxies of this process."""
    with patch("transom.proxy.app.Tokenizer", cache(Tokenizer)):
        yield


@pytest.fixture(scope="session", autouse=True)
def untouched_garbage() -> Iterator[None]:
    """Let the servers in this process leave the garbage collector alone; those of other processes do not."""
    with patch("transom.proxy.process.Garbage", Untouched):
        yield
