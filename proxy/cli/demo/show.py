"""The demo from its first line to its last: starts the proxy, has the conversation held, cleans up whatever happens."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from types import FrameType
from typing import Any

from transom.proxy.cli.demo.screen import Screen
from transom.proxy.cli.demo.server import ProxyFailed, starting_proxy


def demo() -> int:
    """Run the demo; return 0, or 1 where it could not be run or something did not come out as it should.

    It never waits for input. The proxy's process and folder are gone when it returns.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal that lacks a sign gets a question mark, not a crash; who reads a pipe gets each turn as it happens.
        sys.stdout.reconfigure(errors="replace", line_buffering=True)
    try:
        with _ends_in_order() as asked:
            well = _shown(Screen(asked))
            if asked:
                raise KeyboardInterrupt
            return 0 if well else 1
    except ProxyFailed as failure:
        sys.stderr.write(f"The demo cannot go on: {failure}\n")
    except KeyboardInterrupt:
        sys.stderr.write("\nThe demo was stopped; its proxy and its folder are gone.\n")
    return 1


def _shown(screen: Screen) -> bool:
    """Show everything; tell whether all came out as it should."""
    screen.title("Transom: a long conversation through a small window")
    screen.text("Starting a proxy of the demo's own …", style="dim")
    with starting_proxy() as starting:
        # The client's library takes as long to load as the proxy takes to start.
        from transom.proxy.cli.demo.conversation import hold  # noqa: PLC0415
        from transom.proxy.cli.demo.ending import show_fact, show_totals, show_way_on  # noqa: PLC0415

        proxy = starting.ready()
        held = hold(proxy, screen)
        remembered = show_fact(screen, held)
        agreed = show_totals(screen, proxy, held)
    show_way_on(screen)
    return remembered and agreed


@contextmanager
def _ends_in_order() -> Iterator[list[int]]:
    """Treat a request to end, or the end of the terminal, as Ctrl-C; yield the list of those that came.

    An exception that a handler raises is lost where it falls into a destructor: whoever goes on looks at the list.
    """
    asked: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not the main thread
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN:  # nohup means to go on
                before[one] = signal.signal(one, interrupt)
    try:
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
