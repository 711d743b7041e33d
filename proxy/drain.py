"""Tells the application how far the server's end has come; does not know what the application does about it."""

import asyncio


class Drain:
    """The end of one server process.

    `draining` is set when no new request should be taken; `expired` when the requests still running should end at
    once, streams with an error event.
    """

    def __init__(self) -> None:
        self.draining = False
        self.expired = asyncio.Event()
