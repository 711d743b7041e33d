"""The adapter's tests run on the event loop of production, and on the standard library's, which checks more."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loops that a test runs on."""
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name == "test_direct.py":
        loops["uvloop"] = uvloop.new_event_loop
    return loops
