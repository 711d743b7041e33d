"""From bytes to messages and back: parsing, splicing, events."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import texts
from bench.micro.conftest import LARGE, SIZES, history
from bench.upstream import STREAM
from transom.proxy.sse import SseSplitter, events, payload
from transom.proxy.tokens import Tokenizer
from transom.proxy.wire.chat import compose, parse_call
from transom.proxy.wire.messages import read_messages
from transom.proxy.wire.stream import StreamReader

KEPT = 20
PIECE_BYTES = 1_400  # a packet's worth
EVENTS = [chunk.partition(b"\r\n")[2].removesuffix(b"\r\n") for chunk in STREAM]


@pytest.mark.parametrize("size", [*SIZES, LARGE])
def test_parse_a_body(benchmark: BenchmarkFixture, bodies: dict[str, bytes], size: str) -> None:
    assert len(benchmark(lambda: parse_call(bodies[size]).slices)) == len(history(size))


@pytest.mark.parametrize("size", SIZES)
def test_read_and_count_messages(benchmark: BenchmarkFixture, tokenizer: Tokenizer, size: str) -> None:
    slices = history(size)
    assert len(benchmark(read_messages, slices, tokenizer)) == len(slices)


def test_count_one_message(benchmark: BenchmarkFixture, tokenizer: Tokenizer) -> None:
    assert benchmark(tokenizer.count, texts.text(140, 1)) > 100


@pytest.mark.parametrize("size", ["200 messages", "1,000 messages"])
def test_resume_a_known_history(benchmark: BenchmarkFixture, size: str) -> None:
    known = parse_call(texts.body(history(size))).slices
    body = texts.body([*history(size), texts.message("assistant", "so"), texts.message("user", "and now")])
    assert len(benchmark(lambda: parse_call(body).resume(known))) == len(known) + 2


@pytest.mark.parametrize("size", ["200 messages", "1,000 messages"])
def test_splice_the_upstream_body(benchmark: BenchmarkFixture, bodies: dict[str, bytes], size: str) -> None:
    call = parse_call(bodies[size])
    sent = [call.slices[0], *call.slices[-KEPT:]]
    assert len(benchmark(compose, call, sent, model="upstream", stream_usage=False)) < len(call.body)


def test_split_a_stream_into_events(benchmark: BenchmarkFixture) -> None:
    stream = b"".join(EVENTS)
    pieces = [stream[at : at + PIECE_BYTES] for at in range(0, len(stream), PIECE_BYTES)]

    def split() -> int:
        splitter = SseSplitter()
        return sum(len(payload(event)) > 0 for piece in pieces for event in events(splitter.feed(piece)))

    assert benchmark(split) == len(EVENTS)


def test_follow_a_stream(benchmark: BenchmarkFixture) -> None:
    def follow() -> bool:
        reader = StreamReader()
        for event in EVENTS:
            reader.feed_block(event)
        return reader.content_seen

    assert benchmark(follow)
