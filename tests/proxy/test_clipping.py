"""Names in the sentences of errors."""

from transom.proxy.clipping import clipped, listed


def test_long_names_are_cut() -> None:
    assert clipped("m" * 64) == "m" * 64
    assert clipped("m" * 65) == "m" * 64 + "…"
    assert clipped("\ud800") == "?"


def test_at_most_five_are_listed() -> None:
    assert listed("edcba") == "a, b, c, d, e"
    assert listed("fedcba") == "a, b, c, d, e, …"
    assert listed(()) == ""
