"""What the microbenchmarks share: a tokenizer, request bodies, an event loop."""

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from bench import texts
from transom.proxy.tokens import Tokenizer

SIZES = {"short": 2, "200 messages": 200, "1,000 messages": 1_000}
LARGE = "20 MB"
LARGE_MESSAGES = 20_000


def history(size: str) -> list[bytes]:
    """Return the messages of a request of one of the sizes, as their bytes."""
    if size == LARGE:
        return [texts.message("assistant" if n % 2 else "user", texts.text(130, n)) for n in range(LARGE_MESSAGES - 1)]
    return texts.long_history(SIZES[size], 1)


@pytest.fixture(scope="session")
def bodies() -> dict[str, bytes]:
    """Return a request body for each size."""
    return {size: texts.body(history(size)) for size in (*SIZES, LARGE)}


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Return a tokenizer that remembers nothing, so that every round counts anew."""
    return Tokenizer(cache_bytes=0)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Return an event loop to run what is asynchronous; one run costs about 10 µs by itself."""
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()
