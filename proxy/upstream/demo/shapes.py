"""OpenAI's wire shapes for the demo model's answers: completion, chunks, error; it decides nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from transom.proxy.upstream.demo.answer import Answer

__all__ = ["Envelope", "completion", "error", "events"]

# A fixed time (2025-01-01), so that equal requests get equal bytes.
CREATED = 1_735_689_600
FINGERPRINT = "fp_transom_demo"
WORDS_PER_CHUNK = 3
ARGUMENT_CHARS_PER_CHUNK = 24


@dataclass(frozen=True, slots=True)
class Envelope:
    """Hold what stands around an answer.

    Attributes:
        key: makes ids; equal for equal requests.
        model: as the request named it.
        n: how many choices, all alike.
        prompt_tokens, completion_tokens: the usage of one choice.
    """

    key: str
    model: str
    n: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def usage(self) -> dict[str, object]:
        """Return the usage of all choices together."""
        completion_tokens = self.completion_tokens * self.n
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def around(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        """Return the object of a kind with its choices, without usage."""
        return {
            "id": f"chatcmpl-demo{self.key}",
            "object": kind,
            "created": CREATED,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }

    def call_id(self, choice: int, call: int) -> str:
        """Return the id of a call."""
        return f"call_{self.key}{choice}x{call}"


def completion(answer: Answer, envelope: Envelope) -> bytes:
    """Return a whole `chat.completion`."""
    choices = []
    for index in range(envelope.n):
        message: dict[str, object] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": envelope.call_id(index, at),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for at, (name, arguments) in enumerate(answer.calls)
            ]
        else:
            message["content"] = answer.text
        choices.append(
            {"index": index, "message": message, "logprobs": None, "finish_reason": answer.finish_reason},
        )
    return msgspec.json.encode({**envelope.around("chat.completion", choices), "usage": envelope.usage})


def events(answer: Answer, envelope: Envelope, *, include_usage: bool) -> Iterator[bytes]:
    """Yield the server-sent events of a stream, `[DONE]` included."""
    unknown_yet: dict[str, object] = {"usage": None} if include_usage else {}
    for index in range(envelope.n):
        deltas: list[tuple[dict[str, object], str | None]] = [
            (delta, None) for delta in _deltas(answer, envelope, index)
        ]
        for delta, finish in [*deltas, ({}, answer.finish_reason)]:
            choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield _event({**envelope.around("chat.completion.chunk", [choice]), **unknown_yet})
    if include_usage:
        yield _event({**envelope.around("chat.completion.chunk", []), "usage": envelope.usage})
    yield b"data: [DONE]\n\n"


def _deltas(answer: Answer, envelope: Envelope, index: int) -> Iterator[dict[str, object]]:
    yield {"role": "assistant", "content": None if answer.calls else "", "refusal": None}
    for at, (name, arguments) in enumerate(answer.calls):
        function = {"name": name, "arguments": ""}
        yield {
            "tool_calls": [{"index": at, "id": envelope.call_id(index, at), "type": "function", "function": function}]
        }
        for start in range(0, len(arguments), ARGUMENT_CHARS_PER_CHUNK):
            piece = arguments[start : start + ARGUMENT_CHARS_PER_CHUNK]
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}
    words = answer.text.split(" ") if answer.text else []
    for start in range(0, len(words), WORDS_PER_CHUNK):
        piece = " ".join(words[start : start + WORDS_PER_CHUNK])
        yield {"content": f" {piece}" if start else piece}


def error(message: str, *, param: str | None = None, code: str | None = None) -> bytes:
    """Return OpenAI's body of a request that is refused."""
    return msgspec.json.encode(
        {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}
    )


def _event(chunk: dict[str, object]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
