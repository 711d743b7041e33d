"""A made-up model server: answers at once, streams or waits as it is told, and looks at nothing but the body's ends.

`python -m bench.upstream PORT` runs it on loopback. `PUT /pace` with a `Pace` says how long it takes from now on;
`GET /seen` returns what it was sent since the last time.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import cast

import httptools
import msgspec
import uvloop

from bench.texts import text

CHUNKS = 50
ANSWERS = 256  # so that clients get texts which no cache of counts knows for long
BYTES_PER_TOKEN = 7.1  # of requests made of `bench.texts`, in o200k
END_BYTES = 300  # what is looked at for `stream` and the model
SUMMARY = b'"bench-summary"'

encode = msgspec.json.encode


class Pace(msgspec.Struct, frozen=True):
    """How long answers take, in milliseconds; a stream pauses between two chunks."""

    answer_ms: float = 0
    chunk_ms: float = 0
    summary_ms: float = 0


class Seen(msgspec.Struct):
    """What has come since somebody asked."""

    requests: int = 0
    summaries: int = 0
    bytes: int = 0


def _usage(body: bytes) -> dict[str, int]:
    prompt = int(len(body) / BYTES_PER_TOKEN)
    return {"prompt_tokens": prompt, "completion_tokens": 60, "total_tokens": prompt + 60}


def _response(content: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(content)) + content


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    base = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return b"data: " + encode(base | {"choices": [choice]}) + b"\n\n"


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = [_chunk(_event({"role": "assistant", "content": ""}))]
STREAM += [_chunk(_event({"content": f" {text(3, seed)}"})) for seed in range(CHUNKS)]
STREAM_END = _chunk(_event({}, "stop"))


def _stream_tail(body: bytes) -> bytes:
    usage = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": []}
    last = b"data: " + encode(usage | {"usage": _usage(body)}) + b"\n\n"
    return STREAM_END + _chunk(last) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _completion(content: bytes, body: bytes) -> bytes:
    return _response(
        b'{"id":"chatcmpl-bench","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,'
        b'"message":{"role":"assistant","content":%b},"finish_reason":"stop"}],"usage":%b}'
        % (content, encode(_usage(body)))
    )


@dataclass(slots=True)
class State:
    """What all connections share."""

    pace: Pace
    seen: Seen
    answers: list[bytes]

    def answer(self) -> bytes:
        """Return the next answer's text, as JSON."""
        return self.answers[self.seen.requests % len(self.answers)]


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it come one after the other."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._pieces: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by descent

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._late is not None:
            self._late.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Begin a request (called by the parser, as what follows)."""
        self._url, self._pieces = url, []

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of its body."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Answer it."""
        body = b"".join(self._pieces)
        if self._url.endswith(b"/chat/completions"):
            self._chat(body)
        elif self._url == b"/pace":
            self._state.pace = msgspec.json.decode(body, type=Pace)
            self._write(_response(b"{}"))
        elif self._url == b"/seen":
            self._write(_response(encode(self._state.seen)))
            self._state.seen = Seen()
        else:
            self._write(_response(b"{}", b"404 Not Found"))

    def _chat(self, body: bytes) -> None:
        state, ends = self._state, body[:END_BYTES] + body[-END_BYTES:]
        state.seen.requests += 1
        state.seen.bytes += len(body)
        if SUMMARY in ends:
            state.seen.summaries += 1
            self._later(state.pace.summary_ms, _completion(encode("So far: " + text(200, state.seen.requests)), body))
        elif b'"stream":true' in ends:
            self._stream(state.pace.chunk_ms, _stream_tail(body))
        else:
            self._later(state.pace.answer_ms, _completion(state.answer(), body))

    def _stream(self, chunk_ms: float, tail: bytes) -> None:
        if chunk_ms:
            self._late = asyncio.create_task(self._paced(chunk_ms / 1000, tail))
        else:
            self._write(STREAM_HEAD + b"".join(STREAM) + tail)

    async def _paced(self, seconds: float, tail: bytes) -> None:
        self._write(STREAM_HEAD + STREAM[0])
        for piece in STREAM[1:]:
            self._write(piece)
            await asyncio.sleep(seconds)
        self._write(tail)

    def _later(self, milliseconds: float, response: bytes) -> None:
        if milliseconds:
            asyncio.get_running_loop().call_later(milliseconds / 1000, self._write, response)
        else:
            self._write(response)

    def _write(self, response: bytes) -> None:
        if self._transport is not None:
            self._transport.write(response)


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    state = State(Pace(), Seen(), [encode(text(60, 500 + seed)) for seed in range(ANSWERS)])
    server = await asyncio.get_running_loop().create_server(lambda: Connection(state), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
