"""Links lead to sessions until they are forgotten, and forgetting one session costs nothing for the others."""

from hypothesis import given
from hypothesis import strategies as st

from transom.proxy.sessions import Links


class Compared(bytes):
    """A session's id that counts how often it is looked at."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return bytes.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = bytes.__hash__


def test_forgetting_a_session_looks_at_no_other() -> None:
    links = Links()
    for number in range(1_000):
        links.keep(b"%d" % number, Compared(b"of %d" % number))
    Compared.count = 0
    links.forget(Compared(b"of 7"))
    assert Compared.count < 10
    assert links.get(b"7") is None
    assert links.get(b"8") == b"of 8"


NAMES = st.sampled_from([b"a", b"b", b"c", b"d"])


@given(st.lists(st.tuples(st.booleans(), NAMES, NAMES)), st.integers(1, 4))
def test_what_is_remembered_is_what_a_plain_table_would_hold(steps: list[tuple[bool, bytes, bytes]], most: int) -> None:
    links, table = Links(most), dict[bytes, bytes]()
    for kept, link, session in steps:
        if kept:
            links.keep(link, session)
            table.pop(link, None)
            table[link] = session
            if len(table) > most:
                del table[next(iter(table))]
        else:
            links.forget(session)
            table = {k: v for k, v in table.items() if v != session}
        assert {name: links.get(name) for name in (b"a", b"b", b"c", b"d") if links.get(name) is not None} == table
