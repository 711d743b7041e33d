"""Reads a model's JSON answer: its messages, their ends, its usage; streams are collected next door in `stream`."""

from dataclasses import dataclass
from typing import Any

import msgspec

from transom.proxy.errors import UpstreamBadResponse
from transom.proxy.wire.chat import MESSAGE_DEPTH
from transom.proxy.wire.raw import assemble, is_deeper, is_utf8, members, mend_surrogates

# Beyond any model's window: a count like this is a server's mistake.
MAX_TOKENS = 100_000_000
# What a message may hold without saying anything.
_SILENT = frozenset(("role", "annotations", "name"))


@dataclass(frozen=True, slots=True)
class Usage:
    """What the upstream says it counted: prompt tokens (cached ones included), cached and completion tokens."""

    prompt: int
    cached: int
    completion: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer, one message and one finish reason a choice, in the order of the choices' indexes.

    `complete`: the model came to an end of its own. `empty`: no choice says anything (no content, refusal, call,
    reasoning or the like).
    """

    id: str | None
    messages: list[bytes]
    finish: list[str | None]
    usage: Usage | None
    complete: bool
    empty: bool


class _Choice(msgspec.Struct):
    message: msgspec.Raw
    index: Any = 0
    finish_reason: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    id: Any = None
    usage: Any = None


class _Spoken(msgspec.Struct):
    """What most messages are: a role and a text."""

    role: str = ""
    content: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_decode_spoken = msgspec.json.Decoder(_Spoken).decode


def parse_reply(body: bytes) -> Reply:
    """Read the body of a JSON answer; the messages are its own bytes, half surrogates replaced.

    An answer that says nothing is complete only with a finish reason; any other is with or without one.

    Raises:
        UpstreamBadResponse: not a JSON object, or without choices that hold messages.
    """
    answer = _answer(body)
    if not answer.choices:
        raise UpstreamBadResponse("The model's server answered without any choice.")
    choices = sorted(answer.choices, key=lambda choice: choice.index if isinstance(choice.index, int) else 0)
    messages, empty = [], True
    for choice in choices:
        message, speaks = _message(bytes(choice.message))
        messages.append(message)
        empty = empty and not speaks
    finish = [choice.finish_reason if isinstance(choice.finish_reason, str) else None for choice in choices]
    return Reply(
        id=answer.id if isinstance(answer.id, str) else None,
        messages=messages,
        finish=finish,
        usage=read_usage(answer.usage),
        complete=not empty or all(finish),
        empty=empty,
    )


def _answer(body: bytes) -> _Answer:
    if not is_utf8(body):
        body = body.decode(errors="replace").encode()
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _decode(mend_surrogates(body))
    except (msgspec.DecodeError, RecursionError):
        raise UpstreamBadResponse("The model's server answered with something that is no chat completion.") from None


def _message(raw: bytes) -> tuple[bytes, bool]:
    """Return a choice's message with its role, and whether it says anything."""
    if not raw.startswith(b"{") or is_deeper(raw, MESSAGE_DEPTH):
        raise UpstreamBadResponse("The model's server answered with a choice that holds no usable message.")
    try:
        spoken = _decode_spoken(raw)
    except msgspec.DecodeError:
        pass
    else:
        if spoken.role and spoken.content:
            return raw, True
    message = _with_role(raw)
    return message, _says_something(message)


def _with_role(message: bytes) -> bytes:
    """Return a message that names its role: some servers leave out what goes without saying."""
    try:
        fields = dict(members(message))
    except (msgspec.DecodeError, RecursionError):
        return message
    if fields.get("role", b"").startswith(b'"'):
        return message
    return assemble({**fields, "role": b'"assistant"'}.items())


def read_usage(usage: Any) -> Usage | None:
    """Return a usage object's counts; None where the prompt's is missing, negative or absurd.

    Cached tokens are read in the ways of OpenAI, DeepSeek and Anthropic; an implausible count is 0.
    """
    prompt = _count(usage, "prompt_tokens")
    if not prompt:
        return None
    cached = (
        _count(usage.get("prompt_tokens_details"), "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cache_read_input_tokens")
    )
    return Usage(prompt, min(cached, prompt), _count(usage, "completion_tokens"))


def _count(usage: Any, name: str) -> int:
    """Return a plausible number of tokens, else 0."""
    value = usage.get(name) if isinstance(usage, dict) else None
    plausible = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return int(value) if plausible and value else 0


def says_something(message: dict[str, Any]) -> bool:
    """Tell whether an assistant message holds anything besides its role."""
    return any(value not in (None, "", [], {}) for name, value in message.items() if name not in _SILENT)


def _says_something(raw: bytes) -> bool:
    try:
        return says_something(msgspec.json.decode(raw, type=dict[str, Any]))
    except msgspec.ValidationError:
        # A number out of range is something.
        return True
