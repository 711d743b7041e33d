"""What must hold of every view, read from the window's contract and not from the code that makes views.

It reads a thread in its own, slow way and knows of the product only the values that go in and come out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.policies.builders import Decided, Step, Writer
from transom.policies.history import History
from transom.policies.items import Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.render import LABEL
from transom.policies.view import View


class Violation(AssertionError):
    """A view breaks the contract."""


def must(holds: bool, rule: str, *seen: object) -> None:
    if not holds:
        raise Violation(f"{rule}: {' '.join(map(repr, seen))}")


class Reading:
    """The turns, groups and pairs of a thread."""

    def __init__(self, messages: Sequence[Message], policy: Policy) -> None:
        self.messages = messages
        self.leader = list(range(len(messages)))  # position -> the message its group starts with
        self.unanswered = [[c.id for c in m.calls] for m in messages]
        self.orphans: set[int] = set()
        for place, message in enumerate(messages):
            if message.answers is not None:
                self._pair(place, message.answers)
        self.turn = self._turns()
        self.users = [p for p, m in enumerate(messages) if m.role == "user"]
        self.open = {p for p in range(len(messages)) if self.unanswered[p] and self._is_at_work(p)}
        self.broken = self.orphans | {
            p for p in range(len(messages)) if self.unanswered[self.leader[p]] and self.leader[p] not in self.open
        }
        self.protected = self._protected(policy)
        self.dropped = self._dropped()

    def _pair(self, place: int, identity: str) -> None:
        for before in range(place - 1, -1, -1):
            if identity in self.unanswered[before]:
                self.unanswered[before].remove(identity)
                self.leader[place] = before
                return
        self.orphans.add(place)

    def _is_at_work(self, leader: int) -> bool:
        return all(self.leader[p] == leader for p in range(leader, len(self.messages)))

    def _turns(self) -> list[int]:
        turns, turn = [], 0
        for place, message in enumerate(self.messages):
            if message.role == "user" and (place == 0 or self.messages[place - 1].role != "user"):
                turn += 1
            turns.append(turn)
        return [turns[leader] for leader in self.leader]

    def group(self, leader: int) -> list[int]:
        return [p for p in range(leader, len(self.messages)) if self.leader[p] == leader]

    def _protected(self, policy: Policy) -> set[int]:
        leaders = {self.leader[-1], *self.open} if self.messages else set()
        leaders.update(self.users[-1:])
        leaders.update(p for p in self.users if self.turn[p] <= policy.keep_first_turns)
        if policy.mid_system == "keep":
            leaders.update(p for p, m in enumerate(self.messages) if m.role in ("system", "developer"))
        return {p for p in range(len(self.messages)) if self.leader[p] in leaders}

    def _dropped(self) -> set[int]:
        """Return what goes before all else once a cut is made: what the client broke, and turn 0 if a user spoke."""
        opening = {p for p in range(len(self.messages)) if self.users and self.turn[p] == 0}
        return (self.broken | opening) - self.protected

    @property
    def questions(self) -> set[int]:
        """The user messages that stay because a protected answer to them does."""
        answers = {p for p in self.protected - self.orphans if is_model(self.messages[p])}
        asked = {self.turn[p] for p in answers}
        return {p for p in self.users if self.turn[p] in asked}

    @property
    def current(self) -> int:
        return self.turn[self.users[-1]] if self.users else 0

    def iterations(self) -> list[int]:
        """Return the leaders of the current turn's iterations, oldest first."""
        return [
            p
            for p, m in enumerate(self.messages)
            if self.turn[p] == self.current and self.leader[p] == p and p not in self.orphans and is_model(m)
        ]

    def newest(self, count: int) -> set[int]:
        """Return the leaders of the newest iterations of the current turn."""
        return set(self.iterations()[-count:]) if count else set()


def is_model(message: Message) -> bool:
    return message.role != "user" and message.role not in ("system", "developer")


def is_legal(messages: Sequence[Message]) -> bool:
    """Tell whether calls and results pair up somehow, as lenient providers ask; the last group may be open."""
    return not Reading(messages, Policy()).broken


def is_acceptable(messages: Sequence[Message]) -> bool:
    """Tell whether every provider accepts the pairs: each call's results stand right behind it, the open ones last."""
    awaited: set[str] = set()
    for message in messages:
        if message.answers is not None:
            if message.answers not in awaited:
                return False
            awaited.remove(message.answers)
        elif awaited:
            return False
        else:
            awaited = {c.id for c in message.calls}
    return True


@dataclass
class Case:
    """One request and what it is decided by.

    `late` threads have results that came after other messages: their pairs and limits are checked, not their questions.
    """

    history: History
    limits: Limits
    policy: Policy
    late: bool = False

    @property
    def reading(self) -> Reading:
        return Reading(self.history.messages, self.policy)


def check_view(case: Case, view: View) -> None:
    """Check what the contract says of one view: invariants 1, 2, 3 and the count of 5."""
    reading, messages = case.reading, case.history.messages
    kept = list(view.positions(len(messages)))
    present = set(kept)
    must(kept == sorted(present), "order is kept", kept)
    must(present <= set(range(len(messages))), "what is kept is the request's own", kept)
    cut = view.summary is not None or len(kept) < len(messages)
    if messages:
        must(len(messages) - 1 in present, "the last message is there", kept)
    if cut:
        must(reading.protected - reading.broken <= present, "what is protected is there", kept, reading.protected)
        _check_pairs(reading, present)
        _check_start(reading, kept)
    if reading.users:
        must(reading.users[-1] in present, "the last user message is there", kept)
    if view.summary is not None:
        must(view.summary.text.count(LABEL) == 1, "there is at most one summary", view.summary.text)
    _check_size(case, view, kept)


def _check_pairs(reading: Reading, present: set[int]) -> None:
    last = len(reading.messages) - 1
    for place in present:
        group = reading.group(reading.leader[place])
        must(set(group) <= present, "a call and its results stay together", group, sorted(present))
        must(place not in reading.broken or last in group, "what the client broke goes with a cut", place)


def _check_start(reading: Reading, kept: list[int]) -> None:
    """Check that no answer is kept whose question is gone."""
    spoken = [p for p in kept if not reading.messages[p].is_system]
    opening = reading.protected & {p for p in kept if not reading.turn[p]}  # a late result of it may come last
    if reading.users and not opening:
        must(reading.messages[spoken[0]].role == "user", "a window starts with a user message", kept)
    asked = {reading.turn[p] for p in kept if reading.messages[p].role == "user"}
    for place in kept:
        free = place not in reading.protected
        must(not reading.users or not free or reading.turn[place] in asked, "an answer goes with its question", place)


def sizes(case: Case, view: View, kept: Iterable[int]) -> tuple[int, int]:
    """Measure preamble, summary and some messages."""
    parts = [*case.history.preamble, *(case.history.messages[p] for p in kept)]
    tokens = sum(m.tokens for m in parts) + (view.summary.tokens if view.summary else 0)
    return tokens, sum(m.items for m in parts) + bool(view.summary)


def _check_size(case: Case, view: View, kept: list[int]) -> None:
    must(tuple(view.size(case.history)) == sizes(case, view, kept), "a view knows its size", view)


def exceeded(case: Case, view: View, kept: Iterable[int]) -> list[tuple[int, int, int]]:
    """Return `(which, size, limit)` for each limit that some messages exceed."""
    measured = sizes(case, view, kept)
    return [
        (which, size, limit)
        for which, (size, limit) in enumerate(zip(measured, (case.limits.tokens, case.limits.items), strict=True))
        if limit is not None and size > limit
    ]


def check_limits(case: Case, decided: Decided) -> None:
    """Check that each limit holds that what is protected does not exceed by itself."""
    kept = set(decided.view.positions(len(case.history.messages)))
    excused: set[int] = set()
    for given in (decided.start, decided.view):
        view, reading = replace(given, summary=None), case.reading
        protected = (reading.protected | reading.questions) & set(view.positions(len(case.history.messages)))
        excused |= {which for which, *_ in exceeded(case, view, protected)}
    left = [one for one in exceeded(case, decided.view, kept) if one[0] not in excused]
    must(not left, "the limits hold", left, sorted(kept))


def check_truncated(case: Case, step: Step) -> None:
    """Check a cut: oldest first, a turn with its question, as far as the low-water mark and no further."""
    length, base = len(case.history.messages), cut_from(case, step.before)
    before, after = (set(view.positions(length)) for view in (step.before, step.result.view))
    reading = case.reading
    must(after <= before, "a cut brings nothing back", sorted(after - before))
    must(step.result.view.summary == base.summary, "a summary stays while there is room for it", step)
    must(base == step.before or not step.result.persist, "the next view starts with the summary again", step)
    unreachable = {which for which, *_ in exceeded(case, base, reading.protected & before)}
    if all(which in unreachable for which, *_ in exceeded(case, step.before, before)):
        must(after == before, "nothing is cut while the limits hold, or for one that none can reach", sorted(after))
        return
    over = [one for one in exceeded(case, base, before) if one[0] not in unreachable]
    bundles = list(_bundles(reading, before, case.policy))
    gone = before - after - reading.dropped
    taken = 0
    while taken < len(bundles) and bundles[taken][0] <= gone:
        gone -= bundles[taken][0]
        taken += 1
    must(not gone, "groups go oldest first, one at a time", sorted(before - after), bundles)
    reachable = [one for one in _limits(case) if one[0] not in unreachable]
    aims = {which: int(limit * case.policy.trim_to) for which, _, limit in over}

    def held(kept: set[int], eager: bool) -> bool:
        measured = sizes(case, base, kept)
        return all(measured[which] <= (aims.get(which, limit) if eager else limit) for which, limit in reachable)

    if taken < len(bundles):
        must(held(after, bundles[taken][1]), "a cut goes down to trim_to", sorted(after), bundles)
    if taken:
        last, eager = bundles[taken - 1]
        must(not held(after | last, eager), "a cut goes no further than it must", sorted(after), bundles)


def cut_from(case: Case, view: View) -> View:
    """Return a view, less its summary if that alone keeps what must stay from being within a limit."""
    reading, bare = case.reading, replace(view, summary=None)
    floor = (reading.protected | reading.questions) & set(view.positions(len(case.history.messages)))
    out, out_bare = ({which for which, *_ in exceeded(case, v, floor)} for v in (view, bare))
    return view if out == out_bare else replace(bare, owed=frozenset())


def _limits(case: Case) -> Iterator[tuple[int, int]]:
    for which, limit in enumerate((case.limits.tokens, case.limits.items)):
        if limit is not None:
            yield which, limit


def _bundles(reading: Reading, before: set[int], policy: Policy) -> Iterator[tuple[set[int], bool]]:
    """Yield what goes together, in the order it goes, and whether it goes for the low-water mark."""
    spared = reading.newest(policy.keep_recent_iterations)
    free = [p for p in sorted(before) if p not in reading.protected | reading.dropped | reading.questions]
    for turn in range(reading.current):
        left = [p for p in free if reading.turn[p] == turn]
        asked = [p for p in left if reading.messages[p].role == "user"]
        if asked:
            for place in asked[:-1]:
                yield {place}, True
            bundle = set(left) - set(asked[:-1])
            if bundle:
                yield bundle, True
        else:
            yield from _groups(reading, left, eager=True)
    now = [p for p in free if reading.turn[p] == reading.current]
    yield from _groups(reading, [p for p in now if reading.leader[p] not in spared], eager=True)
    yield from _groups(reading, [p for p in now if reading.leader[p] in spared], eager=False)


def _groups(reading: Reading, places: list[int], *, eager: bool) -> Iterator[tuple[set[int], bool]]:
    for leader in dict.fromkeys(reading.leader[p] for p in places):
        yield {p for p in places if reading.leader[p] == leader}, eager


def check_compressed(case: Case, step: Step, writer: Writer) -> None:
    """Check a fold: one run from the start, nothing forgotten, what is protected beside it, within its size."""
    summary, asked = step.result.view.summary, writer.asked[-1]
    must(summary is not None, "a fold makes a summary")
    assert summary is not None
    reading, length = case.reading, len(case.history.messages)
    before, after = (set(view.positions(length)) for view in (step.before, step.result.view))
    old, dropped = set(range(summary.upto)), reading.dropped
    torn = {p for p in old if max(reading.group(reading.leader[p])) >= summary.upto}
    must(after & old <= reading.protected | torn, "a fold takes all from the start on", sorted(after), summary.upto)
    must(after - old == before - old - dropped, "a fold takes nothing newer", sorted(after), summary.upto)
    forgotten = old - writer.stands_for[summary.id] - after - reading.broken
    must(not forgotten, "a summary stands for all that came before", sorted(forgotten), summary.upto)
    must(asked.previous == step.before.summary, "a second fold is given the summary before", asked)
    must(may_end(case, summary.upto), "a fold ends where it may", summary.upto)
    must(all(p >= summary.upto for p in reading.open), "a fold ends before an open group", summary.upto)
    newest = reading.newest(case.policy.keep_recent_iterations)
    must(all(p >= summary.upto for p in newest), "a fold ends before the newest iterations", summary.upto, newest)
    replaced = sum(case.history.messages[p].tokens for p in asked.span)
    replaced += asked.previous.tokens if asked.previous else 0
    limits, bare = reachable(case, step.before), reachable(case, replace(step.before, summary=None))
    over = bare[0] is not None and step.before.size(case.history).tokens > bare[0]
    most = replaced - 1 if over else writer.allowance
    must(summary.tokens <= most, "a summary is smaller than what it replaces", summary.tokens, replaced)
    if limits[0] is not None:
        fixed = fixed_tokens(case, writer)
        must(fixed <= 0.75 * limits[0], "a fold leaves room for the conversation", fixed, limits)


def reachable(case: Case, view: View) -> tuple[int | None, int | None]:
    """Return the limits that what is protected does not exceed by itself."""
    floor = case.reading.protected & set(view.positions(len(case.history.messages)))
    out = {which for which, *_ in exceeded(case, view, floor)}
    return (None if 0 in out else case.limits.tokens, None if 1 in out else case.limits.items)


def fixed_tokens(case: Case, writer: Writer) -> int:
    """Count preamble, pinned messages and a summary of its allowed size."""
    reading = case.reading
    pinned = [p for p in reading.users if reading.turn[p] <= case.policy.keep_first_turns]
    parts = [*case.history.preamble, *(case.history.messages[p] for p in pinned)]
    return sum(m.tokens for m in parts) + writer.allowance


def may_end(case: Case, upto: int) -> bool:
    """Tell whether a fold may end here: where a turn starts, or between the current turn's older iterations."""
    reading, keep = case.reading, case.policy.keep_recent_turns
    starts = [p for p in reading.users if p == 0 or reading.messages[p - 1].role != "user"]
    if case.policy.keep_verbatim == "turns":
        return len(starts) > keep and (upto == starts[-keep] or (case.late and upto in starts[:-keep]))
    if upto in starts:
        return True
    spared = reading.newest(case.policy.keep_recent_iterations) | reading.open
    inside = [p for p in range(upto) if reading.turn[p] == reading.current and reading.leader[p] in spared]
    return upto > max(reading.users, default=0) and not inside


def oldest_end(case: Case) -> int:
    """Return the last position that a fold must reach if nothing less is enough; 0 if nothing is old."""
    reading = case.reading
    ends = [p for p in reading.users if may_end(case, p)]
    for leader in reading.iterations():
        end = max(reading.group(leader)) + 1
        if case.policy.keep_verbatim == "fill" and may_end(case, end):
            ends.append(end)
    return max(ends, default=0)


def check_unfolded(case: Case, step: Step, writer: Writer) -> None:
    """Check that a view is left alone only for a reason: the caller saw that no summary was asked for."""
    reading, summary = case.reading, step.before.summary
    limits = reachable(case, step.before)
    over = [
        size > limit for size, limit in zip(step.before.size(case.history), limits, strict=True) if limit is not None
    ]
    already = summary.upto if summary else 0
    upto = oldest_end(case)
    torn = {p for p in range(upto) if max(reading.group(reading.leader[p])) >= upto}
    unprotected = set(range(already, upto)) - reading.protected - torn
    fixed = reading.protected | torn
    idle = not any(over) or not unprotected or _is_cramped(case, writer, fixed, limits[0])
    idle = idle or any(_may_wait(case, step, end, limits[0]) for end in range(already + 1, upto + 1))
    must(idle, "what is old is folded", upto)


def _may_wait(case: Case, step: Step, end: int, tokens: int | None) -> bool:
    """Tell whether a fold up to here takes little beside pinned messages of more than an eighth of the limit."""
    if case.policy.keep_verbatim == "turns" or tokens is None:
        return False
    reading, messages = case.reading, case.history.messages
    before = set(step.before.positions(len(messages)))
    torn = {p for p in range(end) if max(reading.group(reading.leader[p])) >= end}
    pinned = {p for p in reading.users if reading.turn[p] <= case.policy.keep_first_turns} & before
    moved = sum(messages[p].tokens for p in pinned)
    known = set(range(step.before.summary.upto)) - before - step.before.owed if step.before.summary else set()
    stays = (reading.protected | torn) & before
    taken = sum(messages[p].tokens for p in range(end) if p not in stays | known)
    return moved > tokens / 8 and taken < 6 * moved


def _is_cramped(case: Case, writer: Writer, fixed: set[int], tokens: int | None) -> bool:
    parts = [*case.history.preamble, *(case.history.messages[p] for p in fixed)]
    return tokens is not None and sum(m.tokens for m in parts) + writer.allowance > 0.75 * tokens


def check_decided(case: Case, decided: Decided, writer: Writer) -> None:
    """Check a whole decision and each step of it."""
    for step in decided.steps:
        if step.name == "truncate":
            check_truncated(case, step)
        elif step.result.trimmed:
            check_compressed(case, step, writer)
        elif not step.asked and not case.late:
            check_unfolded(case, step, writer)
    if not decided.steps:
        must(decided.view == decided.start, "nothing is changed while the limits hold", decided)
    check_view(case, decided.view)
    check_limits(case, decided)
