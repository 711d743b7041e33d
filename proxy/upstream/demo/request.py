"""What the demo model reads of a chat completion request; unknown fields are ignored."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

__all__ = ["Call", "ChatRequest", "Function", "Shown", "Tool", "prompt_tokens"]

TOOL_BUDGET = "[Tool budget]"
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
    tools: list[msgspec.Raw] | None = None
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
        offered = []
        for raw in self.tools or ():
            with suppress(msgspec.ValidationError):  # what has no function is no tool of ours
                tool = msgspec.json.decode(raw, type=Tool)
                if tool.function is not None:
                    offered.append(tool.function)
        return offered

    @property
    def current(self) -> list[Shown]:
        """Return the last user message and what follows it; everything if there is none.

        A note at the very end that the tool budget is used up is nobody's question: it is left out.
        """
        messages = self.messages[:-1] if self.out_of_tools else self.messages
        for at in range(len(messages) - 1, -1, -1):
            if messages[at].role == "user":
                return messages[at:]
        return messages

    @property
    def out_of_tools(self) -> bool:
        """Tell whether the last message says that no further tool calls are possible."""
        return len(self.messages) > 1 and self.messages[-1].text.startswith(TOOL_BUDGET)


def prompt_tokens(request: ChatRequest, count: Callable[[str], int]) -> int:
    """Return the size of a request, in the counter's tokens: 4 a message, its text, names and calls, and the tools."""
    total = 3
    for message in request.messages:
        total += 4 + count(message.text) + IMAGE_TOKENS * message.images
        total += count(message.name) if message.name else 0
        for call in message.tool_calls or ():
            total += 4 + count(call.function.name) + count(call.function.arguments)
    if request.tools:
        total += sum(count(bytes(raw).decode()) for raw in request.tools)
    return total
