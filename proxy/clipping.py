"""What a client asked for, and what it may ask for instead, short enough for one sentence of an error."""

from collections.abc import Iterable

SHOWN = 64  # characters of a name
LISTED = 5  # names


def clipped(name: str) -> str:
    """Return a client's own word, cut to 64 characters and encodable as UTF-8."""
    return name[:SHOWN].encode("utf-8", "replace").decode() + "…" * (len(name) > SHOWN)


def listed(names: Iterable[str]) -> str:
    """Return the first five of these names in the alphabet's order, and whether there are more."""
    known = sorted(names)
    return ", ".join(clipped(name) for name in known[:LISTED]) + ", …" * (len(known) > LISTED)
