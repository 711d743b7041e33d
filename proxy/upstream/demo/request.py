"""What the demo model reads of a chat completion request; unknown fields are ignored."""

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["Call", "ChatRequest", "Function", "Shown", "Tool", "prompt_tokens"]

IMAGE_TOKENS = 765


class Function(msgspec.Struct):
    """Hold a function's name, with a call's arguments or an offer's parameters."""

    name: str
    arguments: str = "{}"
    parameters: dict[str, Any] | None = None


class Call(msgspec.Struct):
    """Hold one tool call of an assistant message."""

    function: Function
    id: str = ""


class Tool(msgspec.Struct):
    """Hold one offered tool; those of other types have no function."""

    function: Function | None = None


class Shown(msgspec.Struct):
    """Hold one message."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """Return the text parts, joined."""
        if not isinstance(self.content, list):
            return self.content or ""
        return "\n".join(str(part["text"]) for part in self.content if "text" in part)

    @property
    def images(self) -> int:
        """Return the number of parts that are images."""
        parts = self.content if isinstance(self.content, list) else []
        return sum(1 for part in parts if part.get("type") == "image_url")


class ChatRequest(msgspec.Struct):
    """Hold the fields that the demo model obeys."""

    messages: list[Shown]
    model: str = "demo"
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: dict[str, Any] | None = None

    @property
    def output_limit(self) -> int | None:
        """Return the most tokens the answer may have."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def include_usage(self) -> bool:
        """Tell whether a stream shall end with its usage."""
        return bool(self.stream_options and self.stream_options.get("include_usage"))

    @property
    def functions(self) -> list[Function]:
        """Return the offered functions."""
        return [tool.function for tool in self.tools or () if tool.function is not None]

    @property
    def current(self) -> list[Shown]:
        """Return the last user message and what follows it; everything if there is none."""
        for at in range(len(self.messages) - 1, -1, -1):
            if self.messages[at].role == "user":
                return self.messages[at:]
        return self.messages


def prompt_tokens(request: ChatRequest, count: Callable[[str], int]) -> int:
    """Return the size of a request, in the counter's tokens: 4 a message, its text, names and calls, and the tools."""
    total = 3
    for message in request.messages:
        total += 4 + count(message.text) + IMAGE_TOKENS * message.images
        total += count(message.name) if message.name else 0
        for call in message.tool_calls or ():
            total += 4 + count(call.function.name) + count(call.function.arguments)
    if request.tools:
        total += count(msgspec.json.encode(request.tools).decode())
    return total
