"""The demo model behind the upstream port: reads a request, refuses what OpenAI would refuse, streams the answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from hashlib import blake2b

import msgspec

from transom.proxy.errors import UpstreamBroken
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.upstream.demo.answer import answer, broken_pairs
from transom.proxy.upstream.demo.request import ChatRequest, prompt_tokens
from transom.proxy.upstream.demo.shapes import Envelope, completion, error, events

__all__ = ["DEFAULT_WINDOW", "DemoReply", "DemoUpstream"]

DEFAULT_WINDOW = 8192
MOST_CHOICES = 128


class DemoUpstream:
    """Answer chat completions without a network; an `Upstream`.

    Args:
        count: tells the tokens of a text.
        delay_s: pause before each event of a stream.
    """

    def __init__(self, count: Callable[[str], int], *, delay_s: float = 0) -> None:
        self._count = count
        self._delay_s = delay_s

    async def send(self, request: UpstreamRequest) -> "DemoReply":
        """Return the answer; what a provider would refuse comes back with its 4xx."""
        if request.path.partition("?")[0] != "chat/completions":
            return _refusal(404, error("The demo model offers chat completions only.", code="unknown_url"))
        try:
            chat = msgspec.json.decode(request.body, type=ChatRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as reason:
            return _refusal(400, error(f"The request is not valid: {reason}."))
        if not chat.messages:
            return _refusal(400, error("Expected at least one message.", param="messages"))
        broken = broken_pairs(chat.messages)
        if broken:
            return _refusal(400, error(broken, param="messages"))
        tokens = prompt_tokens(chat, self._count)
        overflow = _overflow(tokens, chat.output_limit or 0, request.model.max_input_tokens or DEFAULT_WINDOW)
        if overflow:
            return _refusal(400, error(overflow, param="messages", code="context_length_exceeded"))
        return self._answered(chat, blake2b(request.body, digest_size=8).hexdigest(), tokens)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _answered(self, chat: ChatRequest, key: str, tokens: int) -> "DemoReply":
        said = answer(chat, self._count)
        completion_tokens = self._count(said.text) + sum(
            4 + self._count(name) + self._count(arguments) for name, arguments in said.calls
        )
        n = min(max(chat.n or 1, 1), MOST_CHOICES)
        envelope = Envelope(key, chat.model, n, tokens, completion_tokens)
        if chat.stream:
            pieces = events(said, envelope, include_usage=chat.include_usage)
            return DemoReply(200, "text/event-stream; charset=utf-8", pieces, self._delay_s)
        return DemoReply(200, "application/json", [completion(said, envelope)])


def _overflow(prompt: int, output: int, window: int) -> str | None:
    """Return OpenAI's sentence about a request larger than the window; None if it fits."""
    start = f"This model's maximum context length is {window} tokens. However, "
    if prompt > window:
        return f"{start}your messages resulted in {prompt} tokens. Please reduce the length of the messages."
    if prompt + output > window:
        return (
            f"{start}you requested {prompt + output} tokens ({prompt} in the messages, {output} in the completion). "
            "Please reduce the length of the messages or completion."
        )
    return None


def _refusal(status: int, body: bytes) -> "DemoReply":
    return DemoReply(status, "application/json", [body])


class DemoReply:
    """Be one answer of the demo model; an `UpstreamReply`."""

    __slots__ = ("_delay_s", "_pieces", "headers", "status")

    def __init__(self, status: int, content_type: str, pieces: Iterable[bytes], delay_s: float = 0) -> None:
        self.status = status
        self.headers = {"content-type": content_type}
        self._pieces: Iterator[bytes] = iter(pieces)
        self._delay_s = delay_s

    async def read(self, limit: int) -> bytes:
        """Return the whole body, of at most `limit` bytes."""
        body = b"".join(self._pieces)
        if len(body) > limit:
            raise UpstreamBroken("too_large")
        return body

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself: the pieces can be had once only."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece, after the delay; without one still let others run."""
        await asyncio.sleep(self._delay_s)
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration

    async def close(self) -> None:
        """Forget the rest."""
        self._pieces = iter(())
