"""litellm's answers as OpenAI would write them: JSON, and the events of a stream; it knows no network and no errors.

Fields that providers add (reasoning, thinking blocks, thought signatures, citations) stay; what is empty goes, and so
do litellm's prices and doublets.
"""

from typing import Any

import msgspec

__all__ = ["completion", "endings", "event", "finishes"]

USAGE = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
USAGE_EXTRAS = ("cache_creation_input_tokens", "cache_read_input_tokens")
PROVIDERS = "provider_specific_fields"


def completion(answer: Any, *, reasoned: bool) -> bytes:
    """Return a JSON answer.

    Args:
        answer: litellm's ModelResponse.
        reasoned: whether the provider said why it ended; if not, an answer that says nothing has no finish reason.
    """
    fields = answer.model_dump()
    choices = [_choice(choice, reasoned) for choice in fields.pop("choices")]
    usage = fields.pop("usage", None)
    body = _head(fields) | {"choices": choices}
    if _counted(usage):
        body["usage"] = _usage(usage)
    return msgspec.json.encode(body)


def event(chunk: Any) -> bytes:
    """Return one event of a stream; empty for a part that says nothing.

    Args:
        chunk: litellm's ModelResponseStream.
    """
    fields = chunk.model_dump(exclude_none=True)
    given = fields.pop("choices")
    if any("logprobs" in choice for choice in given):
        for choice, full in zip(given, chunk.model_dump()["choices"], strict=True):
            choice["logprobs"] = full["logprobs"]  # whose nulls belong there
    choices = [choice for choice in map(_stream_choice, given) if _says(choice)]
    usage = fields.pop("usage", None)
    body = _head(fields) | {"choices": choices}
    if _counted(usage):
        body["usage"] = _usage(usage)
    elif not choices:
        return b""
    return _event(body)


def endings(chunk: Any, ends: dict[int, str]) -> bytes:
    """Return the events that end choices, with what surrounds the choices of any part of their stream."""
    if not ends:
        return b""
    fields = chunk.model_dump(exclude_none=True, exclude={"choices", "usage"})
    return b"".join(
        _event(_head(fields) | {"choices": [{"index": index, "delta": {}, "finish_reason": reason}]})
        for index, reason in ends.items()
    )


def finishes(chunk: Any) -> bool:
    """Tell whether a part of a stream gives a finish reason."""
    return any(choice.finish_reason for choice in chunk.choices)


def _head(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _choice(choice: dict[str, Any], reasoned: bool) -> dict[str, Any]:
    said = choice.pop("message")
    calls = said.pop("tool_calls", None)
    extras = _extras(said)
    message = {"role": said.pop("role", None) or "assistant", "content": said.pop("content", None)}
    message |= {"refusal": said.pop("refusal", None)}
    message |= {name: value for name, value in said.items() if value not in (None, [], {})} | extras
    if calls:
        message["tool_calls"] = [
            {name: v for name, v in call.items() if name != "index" and v is not None} for call in calls
        ]
    finish = choice.pop("finish_reason", None)
    silent = not calls and all(message[name] in (None, "") for name in message if name != "role")
    head = {"index": choice.pop("index", 0), "message": message, "logprobs": choice.pop("logprobs", None)}
    return head | {"finish_reason": None if silent and not reasoned else finish} | _head(choice)


def _stream_choice(choice: dict[str, Any]) -> dict[str, Any]:
    delta = choice.pop("delta", {})
    delta |= _extras(delta)
    head = {"index": choice.pop("index", 0), "delta": delta, "finish_reason": choice.pop("finish_reason", None)}
    return head | _head(choice)


def _says(choice: dict[str, Any]) -> bool:
    """Tell whether a part of a stream says anything of a choice."""
    return bool(choice["delta"]) or choice["finish_reason"] is not None or "logprobs" in choice


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _extras(message: dict[str, Any]) -> dict[str, Any]:
    """Take out the provider's fields, and return those that do not stand in the message itself."""
    fields = message.pop(PROVIDERS, None) or {}
    kept = {name: value for name, value in fields.items() if value not in (None, [], {}) and name not in message}
    return {PROVIDERS: kept} if kept else {}


def _counted(usage: dict[str, Any] | None) -> bool:
    """Tell whether somebody counted: where the provider does not, litellm gives zeros."""
    return bool(usage and usage.get("total_tokens"))


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    counted = {name: usage[name] for name in USAGE if usage.get(name) is not None}
    counted |= {name: usage[name] for name in USAGE_EXTRAS if usage.get(name)}
    for name, value in counted.items():
        if isinstance(value, dict):
            counted[name] = {k: v for k, v in value.items() if v is not None}
    return counted
