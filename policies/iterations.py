"""Cut a thread at its iterations, for the trimmers that count in them; knows no limits and no summaries' texts.

1. An *iteration* is one model response and what answered it: a group led by an assistant message, and the user messages
   just before it. What the client broke is none.
2. A cut before an iteration moves on to the next user message, so that a window never opens on an answer whose question
   is gone. Within the current turn it stays where it is, since the last user message is never removed.
3. A cut removes every group that starts before it, but for the protected ones and the one that carries the summary:
   that one stays together with the user messages that opened its turn. What goes with any cut is not for it to choose.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from transom.policies.history import History
from transom.policies.protection import Protection
from transom.policies.turns import Group
from transom.policies.view import View


@dataclass(frozen=True, slots=True)
class Iteration:
    """One model response and what answered it; `opens` is the position of its first message, a user's if it has one."""

    opens: int
    group: Group

    @property
    def has_question(self) -> bool:
        """Whether user messages stand just before the response."""
        return self.opens < self.group.members[0]


def kept_iterations(history: History, view: View) -> list[Iteration]:
    """Return the iterations that a view still sends, oldest first (rule 1): O(n)."""
    outline = history.outline
    sent = set(view.positions(len(history)))
    found: list[Iteration] = []
    opens: int | None = None
    for group in outline.groups:
        first = group.members[0]
        if group.kind == "user":
            opens = first if opens is None else opens
        elif group.is_iteration and not outline.is_broken(group):
            if first in sent:
                found.append(Iteration(first if opens is None else opens, group))
            opens = None
    return found


def cut_place(history: History, iteration: Iteration) -> int:
    """Return the position where a cut before this iteration falls (rule 2)."""
    outline = history.outline
    if iteration.has_question or iteration.group.turn == outline.current_turn:
        return iteration.opens
    return outline.turn_starts[iteration.group.turn]


def question(history: History, group: Group) -> range:
    """Return the positions of the user messages that opened a group's turn; none in turn 0."""
    outline = history.outline
    if not group.turn:
        return range(0)
    start = outline.turn_starts[group.turn - 1]
    end = start
    while end < len(history) and history.messages[end].role == "user":
        end += 1
    return range(start, end)


def removable(history: History, view: View, guard: Protection) -> Iterator[Group]:
    """Yield the whole groups that a view still sends and a cut may take (rule 3), oldest first."""
    outline = history.outline
    sent = set(view.positions(len(history))) - guard.broken()
    if view.carrier is not None:
        carrier = outline.groups[outline.owner[view.carrier]]
        sent -= {carrier.members[0], *question(history, carrier)}
    for group in outline.groups:
        first = group.members[0]
        if first in sent and not guard.covers(group):
            yield group
