"""Write a view as the few bytes a step or baseline keeps of it, and read it back; positions and ids, never texts."""

from collections.abc import Callable
from types import MappingProxyType

import msgspec

from transom.policies.view import Recalled, Substitute, Summary, View


class Recipe(msgspec.Struct, array_like=True, frozen=True):
    """A view as stored: `summary` is the id of the summary row; `labels` say what the pass did."""

    start: int
    head: tuple[int, ...]
    summary: bytes | None
    omitted: tuple[int, ...]
    substitutes: dict[int, tuple[str, int]]
    labels: tuple[str, ...] = ()
    carrier: int | None = None
    recalled: tuple[str, int, int] | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Recipe)


def encode(view: View, labels: tuple[str, ...] = ()) -> bytes:
    """Write a view as a recipe."""
    return _encoder.encode(
        Recipe(
            view.start,
            view.head,
            view.summary.id if view.summary else None,
            tuple(sorted(view.omitted)),
            {p: (s.text, s.tokens) for p, s in view.substitutes.items()},
            labels,
            view.carrier,
            (view.recalled.text, view.recalled.tokens, view.recalled.before) if view.recalled else None,
        )
    )


def decode(recipe: bytes, summary: Callable[[bytes], Summary | None]) -> tuple[View, tuple[str, ...]] | None:
    """Read a recipe; None if the summary it names is gone (erased meanwhile), for then it says nothing.

    Raises msgspec.DecodeError for bytes that are no recipe.
    """
    r = _decoder.decode(recipe)
    found = summary(r.summary) if r.summary is not None else None
    if r.summary is not None and found is None:
        return None
    substitutes = {p: Substitute(text, tokens) for p, (text, tokens) in r.substitutes.items()}
    recalled = Recalled(*r.recalled) if r.recalled is not None else None
    omitted = frozenset(r.omitted)
    return View(r.start, r.head, found, omitted, MappingProxyType(substitutes), r.carrier, recalled), r.labels
