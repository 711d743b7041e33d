"""Runs Transom and writes down what its event loop does: all of it (profile), or where it stands when busy (stalls).

`python -m bench.instrumented profile|stalls FILE …` takes the arguments of `transom`. It begins with the event loop, so
that the start is not in it.

Stalls are written by the interpreter's own watchdog, whenever the loop is busy for 20 ms: the stacks of all threads,
from a thread that needs no lock of the interpreter, so also of what holds it, such as one long call in C.
"""

import cProfile
import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from transom.proxy.cli import main

BUSY_S = 0.02
BEAT_S = 0.004


@contextmanager
def profile(file: Path) -> Iterator[uvloop.Loop]:
    """Yield an event loop that is profiled; write the file afterwards, for `pstats`."""
    profiler, loop = cProfile.Profile(), uvloop.new_event_loop()
    loop.call_soon(profiler.enable)
    try:
        yield loop
    finally:
        profiler.disable()
        profiler.dump_stats(file)


@contextmanager
def stalls(file: Path) -> Iterator[uvloop.Loop]:
    """Yield an event loop that puts the watchdog off as long as it is not busy; what is in the file stays."""
    loop = uvloop.new_event_loop()
    with file.open("a", encoding="utf-8") as output:

        def beat() -> None:
            faulthandler.dump_traceback_later(BUSY_S, repeat=True, file=output)
            loop.call_later(BEAT_S, beat)

        loop.call_soon(beat)
        try:
            yield loop
        finally:
            faulthandler.cancel_dump_traceback_later()


def run() -> None:
    """Take what is to be written, and where, off the arguments and run the command."""
    written = {"profile": profile, "stalls": stalls}[sys.argv.pop(1)]
    with written(Path(sys.argv.pop(1))) as loop:
        uvloop.new_event_loop = lambda: loop
        main()


if __name__ == "__main__":
    run()
