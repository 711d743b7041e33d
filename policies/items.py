"""The vocabulary of a conversation as values: messages and calls; it knows no wire format, no storage and no policy.

They are made by the thousand and kept for long, so they are msgspec's structs: quick to make, and since none can be
part of a cycle the garbage collector leaves them alone.
"""

from msgspec import Struct


class Call(Struct, frozen=True, gc=False):
    """One tool call of an assistant message.

    `id` is the provider's call id (legacy `function_call`: `"function:" + name`); `arguments` is the text as sent,
    which need not be JSON.
    """

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, gc=False):
    """One element of a conversation.

    `payload` is the wire's own form, forwarded as it is and opaque here; `digest` its 16-byte identity; `tokens` its
    o200k count; `items` what `max_context_items` counts it as; `answers` the call id a tool result answers; `media`
    tells that it holds more than text, so that its count is an estimate.
    """

    role: str
    payload: bytes
    digest: bytes
    tokens: int
    items: int
    calls: tuple[Call, ...] = ()
    answers: str | None = None
    media: bool = False

    @property
    def is_system(self) -> bool:
        """Tell whether the role is `system` or `developer`."""
        return self.role in ("system", "developer")
