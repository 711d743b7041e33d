"""What a client may do with a thread, each request of it checked: the properties that views are held to."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from tests.policies.builders import Decided, Session, Writer, segment
from tests.policies.histories import Move, acceptable, late, limits, moves, policies, preambles, torn, writers
from tests.policies.oracle import Case, check_decided, is_acceptable, is_legal, must
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy

places = st.lists(st.integers(1, 60), max_size=4)
delays = st.lists(st.integers(0, 5), max_size=30)
gaps = st.sets(st.integers(0, 30), max_size=4)


def body(messages: list[Message]) -> list[Message]:
    """Leave out leading system messages: they would be the preamble."""
    first = next((p for p, m in enumerate(messages) if not m.is_system), len(messages))
    return messages[first:]


def prefixes(messages: list[Message], ends: list[int]) -> list[list[Message]]:
    """Return the thread as it stood at some requests, from its first user message on, and as it is."""
    first = next((p for p, m in enumerate(messages) if m.role == "user"), len(messages) - 1) + 1
    chosen = sorted({min(len(messages), max(first, end)) for end in ends} | {len(messages)})
    return [messages[:end] for end in chosen if end]


class Client:
    """One client's requests."""

    def __init__(self, preamble: list[Message], policy: Policy, writer: Writer) -> None:
        self.preamble, self.policy = preamble, policy
        self.session = Session(replace(writer, asked=[], stands_for={}))

    def request(self, messages: Sequence[Message], limits: Limits, *, late: bool = False) -> Decided:
        history = History(self.preamble, messages)
        decided = self.session.request(history, limits, self.policy)
        must(history.messages == list(messages), "the history holds every message", history.messages)
        check_decided(Case(history, limits, self.policy, late), decided, self.session.writer)
        return decided


def goes_on(
    script: list[Move], ends: list[int], preamble: list[Message], limits: Limits, policy: Policy, writer: Writer
) -> None:
    """Ask again and again in a thread that grows."""
    client = Client(preamble, policy, writer)
    for messages in prefixes(body(acceptable(script)), ends):
        assert is_acceptable(messages)
        client.request(messages, limits)


def answers_late(
    script: list[Move], delays: list[int], preamble: list[Message], limits: Limits, policy: Policy, writer: Writer
) -> None:
    """Ask once in a thread whose results came after other messages."""
    messages = body(late(script, delays))
    assert is_legal(messages)
    Client(preamble, policy, writer).request(messages, limits, late=True)


def breaks_pairs(
    script: list[Move], gaps: set[int], ends: list[int], limits: Limits, policy: Policy, writer: Writer
) -> None:
    """Ask again and again in a thread that has orphans and unanswered calls."""
    client = Client([], policy, writer)
    for messages in prefixes(body(torn(script, gaps)), ends):
        client.request(messages, limits)


def asks_twice(
    script: list[Move], ends: list[int], preamble: list[Message], limits: Limits, policy: Policy, writer: Writer
) -> None:
    """Ask the same of two proxies: one reads each thread anew, the other appends to what it has."""
    client, grown, session = Client(preamble, policy, writer), History(preamble), Session(replace(writer, asked=[]))
    for messages in prefixes(body(acceptable(script)), ends):
        first = client.request(messages, limits)
        grown.extend(messages[len(grown) :])
        before = repr(session.starting_view(grown, policy))
        second = session.request(grown, limits, policy)
        must(first.view == second.view, "the same request gets the same view", first, second)
        must(repr(second.start) == before, "the view before is not mutated", second.start, before)
        must(grown.messages == messages, "the history holds every message", grown.messages)
        must(grown.outline == segment(messages), "the outline is not mutated", grown.outline)


def says_more(
    script: list[Move], more: list[Move], preamble: list[Message], limits: Limits, policy: Policy, writer: Writer
) -> None:
    """Go on with a thread after a cut."""
    messages = body(acceptable([Move("user", 4, 1, 0), *script]))
    client = Client(preamble, policy, writer)
    first = client.request(messages, limits)
    if not first.persist:
        return
    longer = [*messages, *acceptable(more)]
    then = client.request(longer, limits)
    before, now = first.view, then.start
    same = (before.start, before.head, before.summary) == (now.start, now.head, now.summary)
    must(same, "a longer thread starts from the view before", before, now)
    fits = limits.hold(before.size(History(preamble, longer)))
    must(not fits or then.view == before, "a view that fits is left alone", before, then.view)


# What each client needs, over all that is possible …
GROWING = (moves(), places, preambles, limits, policies, writers)
LATE = (moves(), delays, preambles, limits, policies, writers)
BROKEN = (moves(), gaps, places, limits, policies, writers)
LONGER = (moves(), moves(6), preambles, limits, policies, writers)

# … and where rules matter most: threads of some length, tight limits, a model that mostly succeeds.
script = moves(24, least=10)
rounds = moves(16, least=8, kinds=("user", "tools", "tools"))
narrow = st.builds(Limits, st.none() | st.integers(40, 150), st.integers(3, 12))
able = st.builds(Writer, st.just([6]) | st.just([6, None]), st.integers(6, 40))
TIGHT_GROWING = (script, places, preambles, narrow, policies, able)
TIGHT_LATE = (rounds, st.lists(st.integers(0, 4), min_size=30), preambles, narrow, policies, able)
TIGHT_BROKEN = (script, gaps, places, narrow, policies, able)
TIGHT_LONGER = (script, moves(6), preambles, narrow, policies, able)
LONG_WINDED = (script, places, preambles, narrow, policies, st.builds(Writer, st.just([60])))
