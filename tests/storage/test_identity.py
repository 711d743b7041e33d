from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from transom.storage.identity import (
    chain,
    key_hash,
    link,
    message_id,
    preamble_id,
    session_id,
    session_secret,
    tenant_secret,
    user_hash,
)

SECRET = bytes(32)
DIGESTS = st.lists(st.binary(min_size=16, max_size=16), max_size=8)


@given(DIGESTS)
def test_a_chain_is_made_message_by_message(digests: list[bytes]) -> None:
    parent = None
    for digest, identity in zip(digests, chain(SECRET, digests), strict=True):
        parent = message_id(SECRET, parent, digest)
        assert identity == parent
        assert len(identity) == 16


@given(DIGESTS, DIGESTS)
def test_a_chain_goes_on_after_its_parent(first: list[bytes], then: list[bytes]) -> None:
    start = chain(SECRET, first)
    parent = start[-1] if start else None
    assert chain(SECRET, first + then) == start + chain(SECRET, then, parent)


def test_ids_depend_on_the_past_and_on_the_secret() -> None:
    one, other = bytes(16), bytes(15) + b"1"
    assert chain(SECRET, [one, one])[0] != chain(SECRET, [one, one])[1]
    assert chain(SECRET, [one, other])[1] != chain(SECRET, [other, other])[1]
    assert message_id(SECRET, None, one) != message_id(bytes(31) + b"1", None, one)


def test_every_part_of_a_session_s_name_counts() -> None:
    named = [
        session_id(SECRET, "acme", "header", None, "s1"),
        session_id(SECRET, "acme", "header", None, "s2"),
        session_id(SECRET, "acme", "body", None, "s1"),
        session_id(SECRET, "acme", "header", "", "s1"),
        session_id(SECRET, "acme", "header", "bearer", "s1"),
        session_id(SECRET, "acmeh", "eader", None, "s1"),
        session_id(bytes(31) + b"1", "acme", "header", None, "s1"),
    ]
    assert all(one != other for one, other in combinations(named, 2))
    assert session_id(SECRET, "acme", "header", None, "s1") == named[0]


def test_half_an_emoji_names_a_session_too() -> None:
    assert session_id(SECRET, "acme", "body", None, "\ud83d") != session_id(SECRET, "acme", "body", None, "\ud83e")


def test_purposes_are_kept_apart() -> None:
    session = session_id(SECRET, "acme", "header", None, "s1")
    made = [
        session_secret(SECRET, session),
        tenant_secret(SECRET, "acme"),
        tenant_secret(SECRET, "acme", "bearer"),
        tenant_secret(SECRET, "acme", None, "bearer"),
    ]
    assert all(len(secret) == 32 for secret in made)
    assert all(one != other for one, other in combinations(made, 2))
    marks = [user_hash(SECRET, "acme", "x"), key_hash(SECRET, "acme", "x"), preamble_id(SECRET, [b"acme", b"x"])]
    assert all(one != other for one, other in combinations(marks, 2))


def test_links_are_a_chain_of_their_own() -> None:
    secret = tenant_secret(SECRET, "acme")
    first = link(secret, None, bytes(16))
    assert [first, link(secret, first, bytes(16))] == chain(secret, [bytes(16), bytes(16)])
