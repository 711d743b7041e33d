"""Write a view as the short JSON a step or baseline keeps of it, and read it back: positions and ids, but no message.

An operator reads the same JSON in the database and in the admin API; a view that is the whole history is almost empty.
"""

from collections.abc import Callable
from types import MappingProxyType

import msgspec

from transom.policies.view import Recalled, Substitute, Summary, View


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """A view as stored: `summary` is the id of the summary row, in hex; `labels` say what the pass did."""

    start: int = 0
    head: tuple[int, ...] = ()
    summary: str | None = None
    carrier: int | None = None
    omitted: tuple[int, ...] = ()
    substitutes: dict[int, Substitute] = msgspec.field(default_factory=dict)
    recalled: Recalled | None = None
    owed: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Recipe)


def encode(view: View, labels: tuple[str, ...] = ()) -> bytes:
    """Write a view as a recipe."""
    return _encoder.encode(
        Recipe(
            start=view.start,
            head=view.head,
            summary=view.summary.id.hex() if view.summary else None,
            carrier=view.carrier,
            omitted=tuple(sorted(view.omitted)),
            substitutes=dict(view.substitutes),
            recalled=view.recalled,
            owed=tuple(sorted(view.owed)),
            labels=labels,
        )
    )


def decode(recipe: bytes, summary: Callable[[bytes], Summary | None]) -> tuple[View, tuple[str, ...]] | None:
    """Read a recipe; None if the summary it names is gone (erased meanwhile), for then it says nothing.

    Raises msgspec.DecodeError for bytes that are no recipe.
    """
    return _view(_decoder.decode(recipe), summary)


def from_json(recipe: object, summary: Callable[[bytes], Summary | None]) -> tuple[View, tuple[str, ...]] | None:
    """Read a recipe from the admin API's JSON. Raises msgspec.ValidationError for what is none."""
    return _view(msgspec.convert(recipe, Recipe, str_keys=True), summary)


def _view(r: Recipe, summary: Callable[[bytes], Summary | None]) -> tuple[View, tuple[str, ...]] | None:
    found = summary(bytes.fromhex(r.summary)) if r.summary is not None else None
    if r.summary is not None and found is None:
        return None
    view = View(
        start=r.start,
        head=r.head,
        summary=found,
        omitted=frozenset(r.omitted),
        substitutes=MappingProxyType(r.substitutes),
        carrier=r.carrier,
        recalled=r.recalled,
        owed=frozenset(r.owed),
    )
    return view, r.labels
