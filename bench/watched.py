"""Runs Transom and writes down where it stands whenever its event loop is busy for longer than it should be.

`python -m bench.watched FILE …` takes the arguments of `transom`. The interpreter's own watchdog writes the stacks of
all threads, from a thread that needs no lock of the interpreter: also of what holds it, such as one long call in C.
"""

import faulthandler
import sys
from pathlib import Path
from typing import TextIO

import uvloop

from transom.proxy.cli import main

BUSY_S = 0.02
BEAT_S = 0.004

_new_event_loop = uvloop.new_event_loop


def _watched_loop(file: TextIO) -> uvloop.Loop:
    """Return an event loop that puts the watchdog off as long as it is not busy."""
    loop = _new_event_loop()

    def beat() -> None:
        faulthandler.dump_traceback_later(BUSY_S, repeat=True, file=file)
        loop.call_later(BEAT_S, beat)

    loop.call_soon(beat)
    return loop


def run() -> None:
    """Take the file's name off the arguments and run the command; what is in the file stays."""
    with Path(sys.argv.pop(1)).open("a", encoding="utf-8") as file:
        uvloop.new_event_loop = lambda: _watched_loop(file)
        try:
            main()
        finally:
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    run()
