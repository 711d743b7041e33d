"""The parts of a stream as litellm's wrapper gets them, and what it would leave out of them.

1. It passes over a part that has none of the fields it knows: a refusal would be lost.
2. It keeps one role and one finish reason for the whole stream: of several choices, only the first would have them.
"""

from typing import Any, Self

__all__ = ["RawStream"]

# Fields of a delta that the wrapper itself sees, or that say nothing.
SEEN = frozenset(
    {"annotations", "audio", "content", "function_call", "images", "index", "provider_specific_fields"}
    | {"reasoning", "reasoning_content", "reasoning_items", "role", "thinking_blocks", "tool_calls"}
)


class RawStream:
    """Look at each part before the wrapper takes it; within a `with` block.

    Args:
        stream: litellm's wrapper.
        several: whether more than one choice was asked for.
    """

    def __init__(self, stream: Any, *, several: bool) -> None:
        self._stream, self._several = stream, several
        self._take = stream.chunk_creator
        self._ends: dict[int, str] = {}
        self._begun: set[int] = set()
        self._known = False  # whether its parts are of OpenAI's shape

    def __enter__(self) -> Self:
        self._stream.chunk_creator = self._look
        return self

    def __exit__(self, *_: object) -> None:
        del self._stream.chunk_creator  # or the two would hold each other

    def ends(self) -> dict[int, str]:
        """Return the finish reasons that came since the last call, by the indexes of their choices.

        Where one choice was asked for there are none: the wrapper's own will do.
        """
        ends, self._ends = self._ends, {}
        return ends

    def own(self, chunk: Any) -> Any:
        """Return a part of several choices with roles where they begin, and without the wrapper's finish reasons.

        Where the parts were of another shape, only the wrapper knows what they say.
        """
        for choice in chunk.choices if self._known else ():
            choice.finish_reason = None
            if choice.index not in self._begun:
                self._begun.add(choice.index)
                choice.delta.role = "assistant"
        return chunk

    def _look(self, chunk: Any) -> Any:
        for choice in getattr(chunk, "choices", None) or ():
            self._known = True
            delta = getattr(choice, "delta", None)
            if delta is not None and getattr(delta, "provider_specific_fields", None) is None and _unseen(delta):
                delta.provider_specific_fields = {}  # the wrapper passes no part over that has these
            if self._several and choice.finish_reason:
                self._ends[choice.index] = choice.finish_reason
        return self._take(chunk=chunk)


def _unseen(delta: Any) -> bool:
    return any(value not in (None, "", [], {}) and name not in SEEN for name, value in delta)
