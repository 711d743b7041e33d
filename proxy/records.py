"""Write down a span of a thread for a summariser, in as few parts as fit its window; it calls no model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from transom.policies.items import Call, Message
from transom.policies.render import Spoken, elided, line, transcript

LABEL_TOKENS = 8  # of a message, and of each call: who speaks, brackets, line ends


@dataclass(frozen=True, slots=True)
class Record:
    """A span of a thread: what the summariser reads of it, what the user said, all calls and texts in order."""

    chunks: list[str]
    said: list[str]
    folded: list[Call | str]


class Recording:
    """Makes records; `spoken` opens a message, `count` counts o200k tokens and remembers what it has counted."""

    def __init__(self, spoken: Callable[[Message], Spoken], count: Callable[[str], int]) -> None:
        self._spoken, self._count = spoken, count

    def record(self, messages: Sequence[Message], result: int, room: int | None) -> Record:
        """Return the record of a span: `result` characters of a tool result are shown.

        Each chunk holds at most `room` o200k tokens, as far as their parts tell; None is no limit.
        """
        names = {call.id: call.name for m in messages for call in m.calls}
        spoken = [_named(s, names) if s.answers else s for s in map(self._spoken, messages)]
        said = [text for s in spoken if s.role == "user" for text in s.texts]
        folded: list[Call | str] = []
        for message, one in zip(messages, spoken, strict=True):
            folded += [*message.calls, *one.texts]
        lines = [line(one, result) for one in spoken]
        whole = transcript(lines)
        if room is None or len(whole.encode(errors="replace")) <= room:  # a token has at least one byte
            return Record([whole], said, folded)
        return Record(self._chunks(spoken, lines, room), said, folded)

    def _chunks(self, spoken: Sequence[Spoken], lines: Sequence[str], room: int) -> list[str]:
        chunks: list[list[str]] = [[]]
        left = room
        for one, whole in zip(spoken, lines, strict=True):
            text, need = whole, self._need(one, whole)
            if need > room:
                text = self._shortened(whole, room)
                need = self._count(text) + LABEL_TOKENS
            if need > left and chunks[-1]:
                chunks.append([])
                left = room
            chunks[-1].append(text)
            left -= need
        return [transcript(chunk) for chunk in chunks]

    def _need(self, one: Spoken, text: str) -> int:
        """Count a message by its parts, whose counts are remembered since it was read; a result may be elided."""
        if one.answers is not None:
            return self._count(text) + LABEL_TOKENS
        parts = [one.name or "", *one.texts, *chain.from_iterable(one.calls)]
        return sum(map(self._count, parts)) + LABEL_TOKENS * (1 + len(one.calls))

    def _shortened(self, text: str, room: int) -> str:
        """Elide the middle of one message that alone is larger than a chunk."""
        most = len(text)
        while (tokens := self._count(text)) > room and most > 64:
            most = max(64, int(most * room / tokens * 0.9))
            text = elided(text, most)
        return text


def _named(result: Spoken, names: Mapping[str, str]) -> Spoken:
    """Return a tool's result under the tool's name, where its call is known."""
    return Spoken(result.role, result.texts, result.calls, result.answers, names.get(result.answers or "", result.name))
