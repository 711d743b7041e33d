"""Rewrite whole answers where a provider, or the tool-call cap, makes it necessary; never on the ordinary path.

Everything here decodes to plain values and encodes again, so bytes are not kept. It knows nothing of streams' framing
but the form of one event.
"""

import time
from contextlib import suppress
from typing import Any

import msgspec

from transom.proxy.sse import events, payload
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


class Spoken:
    """What a stream says besides its messages: the fields around its choices, and those beside their deltas."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def take(self, block: bytes) -> None:
        """Take whole events as they stand in the stream; what cannot be read holds nothing to keep."""
        for one in events(block):
            with suppress(msgspec.DecodeError, RecursionError):
                self._take(_decode(payload(one), type=dict[str, Any]))

    def choices(self) -> list[dict[str, Any]]:
        """Return the further fields of each choice, in the order of their indexes."""
        return [self._choices[index] for index in sorted(self._choices)]

    def _take(self, chunk: dict[str, Any]) -> None:
        for name, value in chunk.items():
            if value is not None and name not in ("object", "choices"):
                self.fields[name] = value
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = choice.get("index")
                known = self._choices.setdefault(index if isinstance(index, int) else 0, {})
                for name, value in choice.items():
                    if value is not None and name not in ("index", "delta", "finish_reason"):
                        known[name] = _continued(known.get(name), value)


def _continued(old: Any, new: Any) -> Any:
    """Return a value with what comes after it: lists grow, also those of an object, as those of `logprobs` do."""
    if isinstance(old, list) and isinstance(new, list):
        old.extend(new)
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _continued(old.get(name), value) for name, value in new.items()}
    return new


def completion(reply: Reply, model: str, spoken: Spoken) -> bytes:
    """Return the JSON answer that a stream amounts to, for a client that did not ask for a stream."""
    choices = []
    for index, (message, finish) in enumerate(zip(reply.messages, reply.finish, strict=True)):
        more = dict(enumerate(spoken.choices())).get(index, {})
        said = {"role": "assistant", "content": None, "refusal": None} | _decode(message)
        choice = {"index": index, "message": said, "logprobs": None, "finish_reason": finish or "stop"}
        choices.append(choice | more)
    return _encode(_head(reply.id, model, "chat.completion") | spoken.fields | {"choices": choices})


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
        more = {k: v for k, v in choice.items() if k not in ("index", "message", "finish_reason")}
        found.append(event(head | {"choices": [{"index": index, "delta": delta, **more, "finish_reason": None}]}))
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

    def __call__(self, payload: bytes) -> bytes | None:
        """Return the event to send instead; None where nothing was taken out."""
        try:
            chunk = _decode(payload)
            choices = chunk["choices"]
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
            choices = None
        changed = False
        for choice in choices if isinstance(choices, list) else ():
            changed = (isinstance(choice, dict) and self._strip(choice)) or changed
        return event(chunk) if changed else None

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
