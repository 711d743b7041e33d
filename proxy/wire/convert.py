"""Rewrite whole answers where a provider, or the tool-call cap, makes it necessary; never on the ordinary path.

Everything here decodes to plain values and encodes again, so bytes are not kept. It knows nothing of streams' framing
but the form of one event.
"""

import time
from typing import Any

import msgspec

from transom.proxy.wire.reply import Reply

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode
_decode = msgspec.json.decode


def event(value: Any) -> bytes:
    """Write one event of a stream."""
    return b"data: " + _encode(value) + b"\n\n"


def without_calls(body: bytes) -> bytes:
    """Return a JSON answer with its tool calls taken out and its ends set to `stop`; the texts stay."""
    answer = _decode(body)
    for choice in answer["choices"]:
        message = choice["message"]
        if message.pop("tool_calls", None) or message.pop("function_call", None):
            choice["finish_reason"] = "stop"
    return _encode(answer)


def text_answer(model: str, text: str) -> bytes:
    """Return a JSON answer of our own that says one sentence."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return _encode(_head(None, model, "chat.completion") | {"choices": [choice]})


def completion(reply: Reply, model: str) -> bytes:
    """Return the JSON answer that a stream amounts to, for a client that did not ask for a stream."""
    choices = [
        {"index": index, "message": _decode(message), "logprobs": None, "finish_reason": finish or "stop"}
        for index, (message, finish) in enumerate(zip(reply.messages, reply.finish, strict=True))
    ]
    answer = _head(reply.id, model, "chat.completion") | {"choices": choices}
    if reply.usage is not None:
        prompt, done = reply.usage.prompt, reply.usage.completion
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": done, "total_tokens": prompt + done}
    return _encode(answer)


def as_stream(body: bytes, *, include_usage: bool) -> list[bytes]:
    """Return the events of a JSON answer, for a client that asked for a stream; `[DONE]` is not among them."""
    answer = _decode(body)
    head = {k: v for k, v in answer.items() if k not in ("choices", "usage", "object")}
    head["object"] = "chat.completion.chunk"
    found = []
    for choice in answer["choices"]:
        index = choice.get("index", 0)
        delta = dict(choice["message"])
        if isinstance(delta.get("tool_calls"), list):
            delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
        found.append(event(head | {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}))
        end = {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
        found.append(event(head | {"choices": [end]}))
    if include_usage and answer.get("usage") is not None:
        found.append(event(head | {"choices": [], "usage": answer["usage"]}))
    return found


def _head(answer_id: str | None, model: str, kind: str) -> dict[str, Any]:
    now = int(time.time())
    return {"id": answer_id or f"chatcmpl-transom-{now}", "object": kind, "created": now, "model": model}


class CallsDropped:
    """Take tool calls out of a stream, event by event; `calls` tells whether there were any."""

    def __init__(self) -> None:
        self.calls = False

    def __call__(self, payload: bytes) -> bytes:
        """Return the event to send instead."""
        try:
            chunk = _decode(payload)
            choices = chunk["choices"]
        except (msgspec.DecodeError, KeyError, TypeError):
            return b"data: " + payload + b"\n\n"
        changed = False
        for choice in choices:
            changed = self._strip(choice) or changed
        return event(chunk) if changed else b"data: " + payload + b"\n\n"

    def _strip(self, choice: dict[str, Any]) -> bool:
        delta = choice.get("delta")
        dropped = isinstance(delta, dict) and [delta.pop(k) for k in ("tool_calls", "function_call") if delta.get(k)]
        if dropped:
            self.calls = True
        if choice.get("finish_reason") in ("tool_calls", "function_call"):
            self.calls = True
            choice["finish_reason"] = "stop"
            return True
        return bool(dropped)
