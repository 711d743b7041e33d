"""Configures logging: structlog, JSON or console, one line per event; keeps secrets and message text out of every line.

Does not know what is logged. Exceptions are reported by type and place, never by their text, which may quote a request.
"""

import asyncio
import atexit
import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec
import structlog

Format = Literal["auto", "json", "console"]
Event = MutableMapping[str, Any]

REDACTED = "[redacted]"
_SECRET_FIELDS = frozenset({"authorization", "api_key", "key", "token", "password", "secret", "cookie", "bearer"})
_SECRET_TEXT = re.compile(r"\b(?:sk|pk|rk|tsm)-[A-Za-z0-9_\-]{8,}|\b[Bb]earer [^\s\"\\]+")
_SECRET_HINTS = ("sk-", "tsm-", "pk-", "rk-", "earer ")  # spare nearly every line the expression above
_FRAMES = 12
GATHER_S = 0.05


def configure(form: Format = "auto", level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records to `stream` (default: standard output), one line each.

    `auto` is for people on a terminal and JSON elsewhere. Libraries are heard from WARNING on.
    """
    target = stream or sys.stdout
    output = Output(target)
    _outputs[:] = [output]
    atexit.unregister(flush)
    atexit.register(flush)
    console = form == "console" or (form == "auto" and _is_terminal(target))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            withhold,
            Line(structlog.dev.ConsoleRenderer() if console else as_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: output,
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Library()]
    root.setLevel(max(level, logging.WARNING))


def flush() -> None:
    """Write what waits; for a process that ends without the interpreter's own end, as a forked one does."""
    for output in _outputs:
        output.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # a closed stream
        return False


def stamp(_logger: object, _method: str, event: Event) -> Event:
    """Add the time in UTC (structlog's own stamper costs as much as all the rest of a line)."""
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    return event


def withhold(_logger: object, _method: str, event: Event) -> Event:
    """Replace fields that hold secrets by their name, and an exception by its type and place."""
    for field in _SECRET_FIELDS & event.keys():
        event[field] = REDACTED
    error = event.pop("exc_info", None)
    if error:
        event["exception"] = describe(sys.exception() if error is True else error)
    return event


def as_json(_logger: object, _method: str, event: Event) -> str:
    """Render an event as one JSON object; a value JSON has no form for is named by its type only."""
    return msgspec.json.encode(event, enc_hook=lambda value: type(value).__name__).decode()


class Line:
    """Renders an event and replaces what looks like a key inside the finished line."""

    def __init__(self, render: Callable[[Any, str, Event], str]) -> None:
        self._render = render

    def __call__(self, logger: object, method: str, event: Event) -> str:
        line = self._render(logger, method, event)
        if any(hint in line for hint in _SECRET_HINTS):
            return _SECRET_TEXT.sub(REDACTED, line)
        return line


def describe(error: object) -> str:
    """Return an exception's type and the innermost places of its trace, without its text.

    Takes an exception or the triple of `sys.exc_info()`.
    """
    raised = error[1] if isinstance(error, tuple) else error
    if not isinstance(raised, BaseException):
        return ""
    frames = traceback.extract_tb(raised.__traceback__)[-_FRAMES:]
    places = " < ".join(f"{frame.name}:{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[::-1])
    cause = raised.__cause__ or raised.__context__
    named = f"{type(raised).__name__} from {type(cause).__name__}" if cause else type(raised).__name__
    return f"{named} in {places}" if places else named


class Output:
    """Writes lines to a stream and goes on in silence when nobody reads it any more.

    On an event loop, lines that tell of nothing wrong are gathered for a moment: one write serves many requests.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gathered: deque[str] = deque()
        self._flushes: asyncio.AbstractEventLoop | None = None  # the loop that will write what is gathered

    def info(self, line: str) -> None:
        """Write one line soon; a closed or full stream loses it."""
        self._gathered.append(line)
        if self._flushes is not None and not self._flushes.is_closed():
            return
        try:
            self._flushes = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
        else:
            self._flushes.call_later(GATHER_S, self.flush)

    def msg(self, line: str) -> None:
        """Write one line at once, behind those that wait."""
        self._gathered.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what waits."""
        self._flushes = None
        lines: list[str] = []
        with suppress(IndexError):  # the end; another thread may be taking lines as well
            while True:
                lines.append(self._gathered.popleft())
        if not lines:
            return
        try:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: closed on our side
            pass

    log = debug = warning = error = critical = exception = fatal = msg


_outputs: list[Output] = []  # the one in use


class _Library(logging.Handler):
    """Passes the standard library's records on to structlog, so that there is one form of line."""

    def emit(self, record: logging.LogRecord) -> None:
        # asyncio's later lines print objects, exceptions with their text among them.
        text = record.getMessage().partition("\n")[0]
        structlog.get_logger().log(record.levelno, text, logger=record.name, exc_info=record.exc_info)
