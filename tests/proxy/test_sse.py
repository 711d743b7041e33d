from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.errors import UpstreamBroken
from transom.proxy.sse import SseSplitter, events, payload

LINE_ENDS = ["\n", "\r\n", "\r"]
LINES = st.sampled_from(
    [
        "data: {}",
        "data:x",
        "data",
        'data: {"a":"é€😀"}',
        ": OPENROUTER PROCESSING",
        ":",
        "event: error",
        "id: 7",
        "data:  two",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Events of mixed lines and line ends, perhaps with stray blank lines and a cut-off tail."""
    parts = []
    for lines in draw(st.lists(st.lists(LINES, max_size=4), max_size=6)):
        parts += [line + draw(st.sampled_from(LINE_ENDS)) for line in lines]
        parts.append(draw(st.sampled_from(LINE_ENDS)))
    parts.append(draw(st.sampled_from(["", "data: cut", "data: cut\n"])))
    return "".join(parts).encode()


def by_the_rules(stream: bytes) -> tuple[list[bytes], bytes]:
    """Cut a stream into events line by line, as the standard tells it."""
    found, current, at, start = [], b"", 0, 0
    while at < len(stream):
        if stream[at] not in b"\r\n":
            at += 1
            continue
        if stream[at : at + 1] == b"\r" and at + 1 == len(stream):
            break  # half of a CRLF, perhaps
        end = at + (2 if stream[at : at + 2] == b"\r\n" else 1)
        current += stream[start:end]
        if at == start:
            found.append(current)
            current = b""
        at = start = end
    return found, current + stream[start:]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def fed(pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    splitter = SseSplitter()
    found = [event for piece in pieces for event in events(splitter.feed(piece))]
    return found, splitter.rest


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_splitting_gives_the_same_events(stream: bytes, places: list[int]) -> None:
    whole = by_the_rules(stream)

    assert fed(cut(stream, places)) == whole
    assert fed([bytes([byte]) for byte in stream]) == whole


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_no_byte_is_lost_or_changed(stream: bytes, places: list[int]) -> None:
    splitter = SseSplitter()

    assert b"".join(splitter.feed(piece) for piece in cut(stream, places)) + splitter.rest == stream


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_the_end_of_a_stream_ends_its_last_event(stream: bytes, places: list[int]) -> None:
    splitter = SseSplitter()
    for piece in cut(stream, places):
        splitter.feed(piece)
    rest, ended = splitter.rest, splitter.ended()

    assert ended.startswith(rest)
    assert b"".join(events(ended)) == ended
    assert [payload(event) for event in events(ended)] == ([payload(rest)] if rest else [])


def test_a_block_is_handed_on_as_the_very_bytes_that_came() -> None:
    chunk = b"data: 1\n\ndata: 2\n\n"

    assert SseSplitter().feed(chunk) is chunk


def test_a_lone_cr_waits_for_the_other_half_of_its_line_end() -> None:
    splitter = SseSplitter()

    assert splitter.feed(b"data: 1\r\n\r") == b""
    assert splitter.feed(b"\ndata: 2") == b"data: 1\r\n\r\n"
    assert splitter.rest == b"data: 2"


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\r\n\r\n", b"{}"),
        (b"data:  x \r\r", b" x "),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"event: error\ndata: a\nid: 1\ndata\n\n", b"a\n"),
        (b": comment\n\n", b""),
        (b": comment\ndata: a\n\n", b"a"),
        (b"database: x\n\n", b""),
        (b"\n", b""),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b"data: [DONE]", b"[DONE]"),
        ("data: é😀\n\n".encode(), "é😀".encode()),
    ],
)
def test_payload(event: bytes, data: bytes) -> None:
    assert payload(event) == data


def test_an_endless_event_is_bounded() -> None:
    splitter = SseSplitter(limit=100)
    splitter.feed(b"data: " + b"x" * 90)

    with pytest.raises(UpstreamBroken) as caught:
        splitter.feed(b"x" * 90)

    assert caught.value.kind == "too_large"


def test_complete_events_do_not_count_against_the_bound() -> None:
    splitter = SseSplitter(limit=100)
    block = b"data: x\n\n" * 1000

    assert splitter.feed(b"data: a") == b""
    assert splitter.feed(b"b\n\n" + block + b"data: rest") == b"data: ab\n\n" + block
