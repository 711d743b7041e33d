"""Bedrock's converse: what it refuses, and how it answers; its streams are frames of AWS's own."""

import json
import struct
from binascii import crc32
from collections.abc import Iterator

from tests.proxy.upstream.litellm.said import Json, Said, alternation, halves

STOPS = {"stop": "end_turn", "length": "max_tokens", "refusal": "guardrail_intervened"}
STREAM = "application/vnd.amazon.eventstream"


def problem(body: Json) -> str | None:
    """Say why the API would refuse a request, or None."""
    messages = body["messages"]
    wrong = alternation([m["role"] for m in messages])
    if wrong:
        return wrong
    waiting: list[str] = []
    for message in messages:
        blocks = message["content"]
        if not blocks or any("text" in b and not b["text"].strip() for b in blocks):
            return "an empty block"
        results = [b["toolResult"]["toolUseId"] for b in blocks if "toolResult" in b]
        if sorted(results) != sorted(waiting):
            return f"results {results} for calls {waiting}"
        waiting = [b["toolUse"]["toolUseId"] for b in blocks if "toolUse" in b]
        if waiting and not body.get("toolConfig"):
            return "calls without toolConfig"
    return f"unanswered calls {waiting}" if waiting else None


def system(body: Json) -> str:
    """Return the system prompt as one text."""
    return "\n".join(block["text"] for block in body.get("system", []) if "text" in block)


def texts(body: Json) -> list[str]:
    """Return what stands in the messages, results included."""
    return [
        block["text"] if "text" in block else json.dumps(block.get("toolResult", ""))
        for message in body["messages"]
        for block in message["content"]
    ]


def whole(said: Said, _model: str, number: int) -> bytes:
    """Return a JSON answer."""
    blocks: list[Json] = [{"text": said.text}] if said.text else []
    blocks += [{"toolUse": use | {"input": arguments}} for use, arguments in _uses(said, number)]
    answer = {"output": {"message": {"role": "assistant", "content": blocks}}, "usage": _usage(said)}
    return json.dumps(answer | {"stopReason": None if said.cut else _stop(said), "metrics": {"latencyMs": 1}}).encode()


def stream(said: Said, _model: str, number: int) -> Iterator[bytes]:
    """Yield the frames of a streamed answer."""
    yield _frame("messageStart", {"role": "assistant"})
    for half in halves(said.text or ""):
        yield _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": half}})
    yield _frame("contentBlockStop", {"contentBlockIndex": 0})
    for index, (use, arguments) in enumerate(_uses(said, number), 1):
        yield _frame("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": use}})
        for half in halves(json.dumps(arguments)):
            yield _frame("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": half}}})
        yield _frame("contentBlockStop", {"contentBlockIndex": index})
    if not said.cut:
        yield _frame("messageStop", {"stopReason": _stop(said)})
        yield _frame("metadata", {"usage": _usage(said), "metrics": {"latencyMs": 1}})


def _uses(said: Said, number: int) -> list[tuple[Json, Json]]:
    return [
        ({"toolUseId": f"tooluse_{number}_{place}", "name": name}, arguments)
        for place, (name, arguments) in enumerate(said.calls)
    ]


def _stop(said: Said) -> str:
    return "tool_use" if said.calls else STOPS[said.finish]


def _usage(said: Said) -> Json:
    return {
        "inputTokens": said.prompt - said.cached,
        "cacheReadInputTokens": said.cached,
        "outputTokens": said.completion,
        "totalTokens": said.prompt + said.completion,
    }


def _frame(kind: str, payload: Json) -> bytes:
    """Return one message of application/vnd.amazon.eventstream: lengths, headers, payload, checksums."""
    named = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return message + struct.pack(">I", crc32(message))
