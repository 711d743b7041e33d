"""Segment a thread into turns and groups, one message at a time; knows nothing of limits, policies or wire formats.

The rules (each has a test of the same number in `tests/policies/test_turns.py`):

1. A *turn* is a maximal run of consecutive `user` messages and all that follows up to the next run. What comes before
   the first user message is turn 0. The last turn is the *current turn*.
2. A *group* is what a window keeps or removes whole: an assistant message with tool calls and all its results, or one
   user message, one plain assistant message, one later system or developer message.
3. A tool result joins the nearest earlier call with its id that is still unanswered: in any order, not necessarily
   adjacent. Servers reuse ids, so an id may be called again.
4. A legacy `function_call` is a call, a `function` message its result; they pair by name.
5. A group is *open* while a call of it is unanswered and nothing but its own results follows it: the client is still at
   work on it.
6. A group with an unanswered call that is not open is *abandoned*; a result without a call is an *orphan*. Both are
   *broken*: forwarded untouched while nothing is cut, dropped once a cut is made.
7. An *iteration* of a turn is one model response and what answered it: here, one group led by an assistant message.
8. Tool calls and rounds (assistant messages with calls) are counted since the last user message.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from transom.policies.items import Message

Kind = Literal["user", "assistant", "system", "tools", "orphan"]


@dataclass(slots=True)
class Group:
    """Messages that a window keeps or removes together (rule 2).

    `members` are positions in the thread, ascending; `unanswered` counts the calls that still lack a result.
    """

    kind: Kind
    turn: int
    members: list[int]
    unanswered: int = 0

    @property
    def is_iteration(self) -> bool:
        """Whether an assistant message leads the group (rule 7)."""
        return self.kind in ("assistant", "tools")


@dataclass(slots=True)
class Outline:
    """The turns and groups of one thread; grows with `append` in constant time a message.

    Positions count from 0 at the first message after the preamble.
    """

    groups: list[Group] = field(default_factory=list)
    turn_starts: list[int] = field(default_factory=list)  # turn k (from 1) starts at turn_starts[k - 1]
    owner: "array[int]" = field(default_factory=lambda: array("L"))  # position -> index of its group
    last_user: int | None = None
    calls_since_user: int = 0
    rounds_since_user: int = 0
    _waiting: dict[str, list[int]] = field(default_factory=dict)  # call id -> groups that wait for it, oldest first
    # Sets in the form of dicts, which the garbage collector leaves alone: there may be 100,000 threads at hand.
    _unanswered: dict[int, None] = field(default_factory=dict)
    _orphans: dict[int, None] = field(default_factory=dict)
    _scattered: dict[int, None] = field(default_factory=dict)  # groups whose messages do not all stand side by side
    _systems: dict[int, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def current_turn(self) -> int:
        """Number of the current turn; 0 while no user has spoken."""
        return len(self.turn_starts)

    def append(self, message: Message) -> None:
        """Add the next message of the thread."""
        position = len(self.owner)
        if message.role == "user":
            self._append_user(position)
        elif message.answers is not None:
            self._append_result(position, message.answers)
        elif message.calls:
            self._append_calls(position, message)
        elif message.is_system:
            self._systems[len(self.groups)] = None
            self._start("system", position)
        else:
            self._start("assistant", position)

    def _start(self, kind: Kind, position: int) -> Group:
        group = Group(kind, len(self.turn_starts), [position])
        self.owner.append(len(self.groups))
        self.groups.append(group)
        return group

    def _append_user(self, position: int) -> None:
        if self.last_user is None or self.last_user != position - 1:
            self.turn_starts.append(position)
        self.last_user = position
        self.calls_since_user = self.rounds_since_user = 0
        self._start("user", position)

    def _append_calls(self, position: int, message: Message) -> None:
        index = len(self.groups)
        group = self._start("tools", position)
        group.unanswered = len(message.calls)
        for call in message.calls:
            self._waiting.setdefault(call.id, []).append(index)
        self._unanswered[index] = None
        self.calls_since_user += len(message.calls)
        self.rounds_since_user += 1

    def _append_result(self, position: int, call_id: str) -> None:
        waiting = self._waiting.get(call_id)
        if not waiting:
            self._orphans[position] = None
            self._start("orphan", position)
            return
        index = waiting.pop()
        group = self.groups[index]
        if group.members[-1] != position - 1:
            self._scattered[index] = None
        group.members.append(position)
        group.unanswered -= 1
        if not group.unanswered:
            self._unanswered.pop(index, None)
        self.owner.append(index)

    def is_open(self, group: Group) -> bool:
        """Whether the client is still at work on this group (rule 5)."""
        return bool(group.unanswered) and group.members[0] + len(group.members) == len(self.owner)

    def is_broken(self, group: Group) -> bool:
        """Whether the group is an orphan or abandoned (rule 6)."""
        return group.kind == "orphan" or (bool(group.unanswered) and not self.is_open(group))

    def broken(self) -> Iterator[int]:
        """Yield the positions of all broken messages, in no particular order."""
        yield from self._orphans
        for index in self._unanswered:
            group = self.groups[index]
            if not self.is_open(group):
                yield from group.members

    def scattered(self) -> Iterator[Group]:
        """Yield the groups that have other messages among their own."""
        for index in self._scattered:
            yield self.groups[index]

    def systems(self) -> Iterator[Group]:
        """Yield the later system and developer messages, oldest first."""
        for index in self._systems:
            yield self.groups[index]

    def iterations(self, turn: int) -> list[Group]:
        """Return the iterations of a turn, oldest first (rule 7)."""
        found: list[Group] = []
        for group in reversed(self.groups):
            if group.turn < turn:
                break
            if group.turn == turn and group.is_iteration:
                found.append(group)
        return found[::-1]
