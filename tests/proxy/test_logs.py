import asyncio
import io
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from transom.proxy import logs

Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    written = io.StringIO()
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def read(stream: io.StringIO) -> Read:
    logs.configure("json", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object(read: Read) -> None:
    structlog.get_logger().info("request", status=200, text='two\nlines "quoted"')
    (line,) = read()
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {"event": "request", "level": "info", "status": 200, "text": 'two\nlines "quoted"'}


def test_debug_is_not_written(read: Read) -> None:
    structlog.get_logger().debug("noise")
    assert read() == []


def test_an_exception_is_named_and_placed_but_not_quoted(read: Read) -> None:
    try:
        try:
            raise KeyError("the user's words")
        except KeyError as error:
            raise ValueError("more words") from error
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = read()
    assert line["exception"].startswith("ValueError from KeyError in ")
    assert "test_logs.py:" in line["exception"]
    assert "words" not in str(line)


def test_an_exception_object_is_taken_too(read: Read) -> None:
    structlog.get_logger().error("failed", exc_info=OSError("words"))
    assert read()[0]["exception"] == "OSError"


@pytest.mark.parametrize(
    "field", ["authorization", "api_key", "key", "token", "password", "secret", "cookie", "bearer"]
)
def test_secret_fields_are_withheld(read: Read, field: str) -> None:
    structlog.get_logger().info("event", **{field: "hunter2"})
    assert read()[0][field] == "[redacted]"


@pytest.mark.parametrize(
    "text", ["sk-proj-abcdef123456", "Bearer abc.def", "refused tsm-0123456789ab twice", "bearer xyz"]
)
def test_what_looks_like_a_key_is_withheld_anywhere(read: Read, text: str) -> None:
    structlog.get_logger().info("event", note=text, nested={"deep": [text]})
    found = json.dumps(read())
    assert "[redacted]" in found
    assert not any(part in found for part in ("abcdef123456", "abc.def", "0123456789ab", "xyz"))


def test_ordinary_words_stay(read: Read) -> None:
    structlog.get_logger().info("task-force", note="a risk-free desk-side task")
    assert read()[0]["note"] == "a risk-free desk-side task"


def test_a_value_json_has_no_form_for_is_named_by_type(read: Read) -> None:
    structlog.get_logger().info("event", value=io.StringIO("words"))
    assert read()[0]["value"] == "StringIO"


def test_libraries_are_heard_from_warning_on(read: Read) -> None:
    logging.getLogger("some.library").info("noise")
    logging.getLogger("some.library").warning("%d left", 3)
    (line,) = read()
    assert (line["event"], line["level"], line["logger"]) == ("3 left", "warning", "some.library")


def test_only_the_first_line_of_a_librarys_record(read: Read) -> None:
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <ValueError('words')>")
    assert read()[0]["event"] == "Task exception was never retrieved"


def test_a_console_is_for_people(stream: io.StringIO) -> None:
    logs.configure("console", stream=stream)
    structlog.get_logger().info("listening", port=8000)
    assert not stream.getvalue().startswith("{")
    assert "listening" in stream.getvalue()


def test_auto_is_json_where_there_is_no_terminal(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    structlog.get_logger().info("event")
    assert json.loads(stream.getvalue())["event"] == "event"


def test_a_closed_stream_loses_lines_and_nothing_else(stream: io.StringIO) -> None:
    stream.close()
    logs.configure(stream=stream)
    structlog.get_logger().info("event")
    logging.getLogger("library").error("event")


def test_a_broken_pipe_loses_lines_and_nothing_else(stream: io.StringIO) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    logs.configure("json", stream=Broken())
    structlog.get_logger().info("event")


def test_no_exception_has_no_description() -> None:
    assert logs.describe((None, None, None)) == ""


async def test_lines_of_requests_are_gathered_for_a_moment(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    structlog.get_logger().info("one")
    structlog.get_logger().info("two")
    assert not stream.getvalue()
    async with asyncio.timeout(60):
        while not stream.getvalue():
            await asyncio.sleep(0.01)
    assert stream.getvalue().count("\n") == 2


async def test_a_warning_waits_for_nothing_and_overtakes_nothing(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)
    structlog.get_logger().info("one")
    structlog.get_logger().warning("two")
    assert [line["event"] for line in map(json.loads, stream.getvalue().splitlines())] == ["one", "two"]


def test_what_a_loop_left_behind_is_written_with_the_next_line(stream: io.StringIO) -> None:
    logs.configure("json", stream=stream)

    async def leave() -> None:
        structlog.get_logger().info("one")

    asyncio.run(leave())
    structlog.get_logger().info("two")
    assert stream.getvalue().count("\n") == 2


def test_two_threads_that_write_at_once_lose_nothing() -> None:
    class Shared(deque[str]):
        """Another thread takes a line at the worst moment."""

        def __len__(self) -> int:
            length = super().__len__()
            if length > 1:
                taken.append(self.popleft())
            return length

    taken: list[str] = []
    written = io.StringIO()
    output = logs.Output(written)
    output._gathered = Shared(["one", "two"])
    output.warning("three")
    assert sorted(taken + written.getvalue().split()) == ["one", "three", "two"]
