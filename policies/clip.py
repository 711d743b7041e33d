"""Shorten what may not be removed, when nothing else is left to make a view small enough; asks no model.

1. Tool results are shortened first, then other texts, the last user message last of all; never the preamble, the
   summary, a later system message, nor what the caller spares.
2. Among messages of one kind the largest go first: they are brought down to the level of the next smaller one, then
   these together, until the view is small enough. No message is brought below `SMALLEST` tokens.
3. A shortened text is its head, a line that says how much is left out, and its tail.
4. Only a message that is text for the most part is shortened: its other parts would be lost with its content.
5. The view that comes back is strictly smaller, if still too large; or it is the same object, if nothing could go.
"""

from collections.abc import Callable, Collection, Iterator

from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.render import elided
from transom.policies.substitution import substitute
from transom.policies.view import Substitute, View

SMALLEST = 96  # tokens of a message
SMALLEST_TEXT = 16  # characters that are left of a text in any case
MOSTLY_TEXT = 0.8  # of a message's tokens
MARGIN = 0.95  # a text's tokens are not spread evenly over its characters


def clip(
    history: History,
    view: View,
    target_tokens: int,
    count: Callable[[str], int],
    content: Callable[[Message], str],
    spared: Collection[int] = (),
) -> View:
    """Shorten a view's texts until it counts at most `target_tokens` o200k tokens, as far as that is possible.

    `spared` are positions that keep their texts whatever the size.
    """
    excess = view.size(history).tokens - target_tokens
    texts: dict[int, Substitute] = {}
    for kind in _kinds(history, view, spared):
        if excess <= 0:
            break
        sizes = {p: _tokens(history, view, p) for p in kind if _is_text(history.messages[p], count, content)}
        level = _level(sorted(sizes.values(), reverse=True), excess)
        for position, tokens in sizes.items():
            if tokens > level:
                shorter = _shortened(history.messages[position], level, count, content)
                if shorter.tokens < tokens:
                    texts[position] = shorter
                    excess -= tokens - shorter.tokens
    return view.substituted(texts) if texts else view


def _kinds(history: History, view: View, spared: Collection[int]) -> Iterator[list[int]]:
    """Yield the positions that may be shortened, in the order in which they are (rule 1)."""
    messages, last_user = history.messages, history.outline.last_user
    large = [
        p
        for p in view.positions(len(history))
        if p != view.carrier and p not in spared and not messages[p].is_system and _tokens(history, view, p) > SMALLEST
    ]
    yield [p for p in large if messages[p].answers is not None]
    yield [p for p in large if messages[p].answers is None and p != last_user]
    yield [p for p in large if p == last_user]


def _tokens(history: History, view: View, position: int) -> int:
    replaced = view.substitutes.get(position)
    return history.messages[position].tokens if replaced is None else replaced.tokens


def _is_text(message: Message, count: Callable[[str], int], content: Callable[[Message], str]) -> bool:
    return not message.media and count(content(message)) >= MOSTLY_TEXT * message.tokens


def _level(sizes: list[int], excess: int) -> int:
    """Return the size that all larger messages must come down to, to be `excess` tokens less together (rule 2)."""
    saved = 0
    for place, size in enumerate(sizes, start=1):
        lower = max(sizes[place] if place < len(sizes) else SMALLEST, SMALLEST)
        if saved + (size - lower) * place >= excess:
            return size - -(-(excess - saved) // place)
        saved += (size - lower) * place
    return SMALLEST


def _shortened(
    message: Message, most_tokens: int, count: Callable[[str], int], content: Callable[[Message], str]
) -> Substitute:
    """Elide a message's text until the message counts at most `most_tokens`; it gets no longer than it takes."""
    text = content(message)
    most = len(text)
    shorter = substitute(message, text, count, content)
    while shorter.tokens > most_tokens and most > SMALLEST_TEXT:
        most = max(SMALLEST_TEXT, int(most * most_tokens / shorter.tokens * MARGIN))
        shorter = substitute(message, elided(text, most), count, content)
    return shorter
