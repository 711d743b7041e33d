"""Anthropic's Messages API: what it refuses, and how it answers."""

import json
from collections.abc import Iterator

from tests.proxy.upstream.litellm.said import Json, Said, alternation, halves

STOPS = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal"}


def problem(body: Json) -> str | None:
    """Say why the API would refuse a request, or None."""
    messages = body["messages"]
    wrong = alternation([m["role"] for m in messages])
    if wrong or not isinstance(body.get("max_tokens"), int):
        return wrong or "no max_tokens"
    waiting: list[str] = []
    for message in messages:
        blocks = _blocks(message["content"])
        wrong = _wrong_block(blocks, waiting)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if wrong:
            return wrong
        if waiting and not body.get("tools"):
            return "calls without tools"
    return f"unanswered calls {waiting}" if waiting else None


def _wrong_block(blocks: list[Json], waiting: list[str]) -> str | None:
    results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    if sorted(results) != sorted(waiting):
        return f"results {results} for calls {waiting}"
    if [b["type"] for b in blocks[: len(results)]] != ["tool_result"] * len(results):
        return "results behind other blocks"
    if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
        return "an empty block"
    if any(b["type"] == "thinking" and not b.get("signature") for b in blocks):
        return "a thought without its signature"
    return None


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def system(body: Json) -> str:
    """Return the system prompt as one text."""
    return "\n".join(block["text"] for block in _blocks(body.get("system", [])))


def texts(body: Json) -> list[str]:
    """Return what stands in the messages, results included."""
    found = []
    for message in body["messages"]:
        for block in _blocks(message["content"]):
            inner = block.get("text") or block.get("content") or ""
            found.append(inner if isinstance(inner, str) else "".join(part.get("text", "") for part in inner))
    return found


def _content(said: Said, call_id: str) -> list[Json]:
    blocks: list[Json] = []
    if said.thinking:
        blocks.append({"type": "thinking", "thinking": said.thinking, "signature": "c2lnbmVk"})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    return blocks + [
        {"type": "tool_use", "id": f"toolu_{call_id}_{place}", "name": name, "input": arguments}
        for place, (name, arguments) in enumerate(said.calls)
    ]


def _usage(said: Said) -> Json:
    fresh = said.prompt - said.cached
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": said.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": said.completion,
    }


def _stop(said: Said) -> str:
    return "tool_use" if said.calls else STOPS[said.finish]


def whole(said: Said, model: str, number: int) -> bytes:
    """Return a JSON answer."""
    answer = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    stop = None if said.cut else _stop(said)
    return json.dumps(
        answer | {"content": _content(said, str(number)), "stop_reason": stop, "usage": _usage(said)}
    ).encode()


def stream(said: Said, model: str, number: int) -> Iterator[bytes]:
    """Yield the events of a streamed answer."""
    empty = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield _event("message_start", message=empty | {"stop_reason": None, "usage": _usage(said) | {"output_tokens": 1}})
    yield _event("ping")
    for index, block in enumerate(_content(said, str(number))):
        kind = block["type"]
        if kind == "text":
            yield _event("content_block_start", index=index, content_block=block | {"text": ""})
            deltas = [{"type": "text_delta", "text": part} for part in halves(block["text"])]
        elif kind == "thinking":
            yield _event("content_block_start", index=index, content_block=block | {"thinking": "", "signature": ""})
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            yield _event("content_block_start", index=index, content_block=block | {"input": {}})
            written = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in halves(written)]
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    if not said.cut:
        usage = {"output_tokens": said.completion}
        yield _event("message_delta", delta={"stop_reason": _stop(said), "stop_sequence": None}, usage=usage)
        yield _event("message_stop")


def failing_stream(model: str, kind: str, *, begun: bool) -> Iterator[bytes]:
    """Yield the events of a stream that reports an error, at once or after its first words."""
    events = list(stream(Said("Half a word"), model, 1))
    yield from events[: 4 if begun else 1]
    yield _event("error", error={"type": kind, "message": "Overloaded"})


def _event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
