"""What is done between parsing and sending: a resent history is known again, and the window decides what goes up."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import texts
from bench.micro.conftest import history
from tests.proxy.builders import NoSummaries, Talk, windowing
from transom.policies.items import Message
from transom.proxy.threads import Preambles, Thread, read
from transom.proxy.tokens import Tokenizer
from transom.proxy.wire.messages import read_messages

WINDOWING = windowing(NoSummaries())


@pytest.mark.parametrize("size", ["200 messages", "1,000 messages"])
def test_match_a_resent_history(
    benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, tokenizer: Tokenizer, size: str
) -> None:
    """The slices are those of the parser: of what is known, the very objects."""
    first, *rest = history(size)
    known, preambles = Thread(), Preambles()
    known.extend(rest, read_messages(rest, tokenizer))
    preambles.keep(first, read_messages([first], tokenizer)[0])
    resent = [first, *rest, texts.message("assistant", "so"), texts.message("user", "and now")]

    async def parse(slices: Sequence[bytes], start: int) -> list[Message]:
        return read_messages(slices, tokenizer, start)

    reading = benchmark(lambda: loop.run_until_complete(read(resent, [known], preambles, parse)))
    assert (reading.common, len(reading.fresh)) == (len(rest), 2)


@pytest.mark.parametrize("size", ["200 messages", "1,000 messages"])
@pytest.mark.parametrize(("limit", "label"), [(1_000_000, "fits"), (4_000, "cut")], ids=["fits", "over the limit"])
def test_window_pass(
    benchmark: BenchmarkFixture,
    loop: asyncio.AbstractEventLoop,
    tokenizer: Tokenizer,
    size: str,
    limit: int,
    label: str,
) -> None:
    first, *rest = read_messages(history(size), tokenizer)
    request = Talk(*rest, preamble=[first], max_tokens=limit).request()

    def decide() -> Any:
        request.state.steps.clear()  # or it would be a replay
        request.state.baselines = ()  # or it would go on from the cut before
        return loop.run_until_complete(WINDOWING.decide(request))

    assert benchmark(decide).labels == [label]


def test_replay_a_decision(benchmark: BenchmarkFixture, loop: asyncio.AbstractEventLoop, tokenizer: Tokenizer) -> None:
    first, *rest = read_messages(history("1,000 messages"), tokenizer)
    request = Talk(*rest, preamble=[first], max_tokens=4_000).request()
    loop.run_until_complete(WINDOWING.decide(request))
    again = benchmark(lambda: loop.run_until_complete(WINDOWING.decide(request)))
    assert again.labels == ["replayed", "cut"]
