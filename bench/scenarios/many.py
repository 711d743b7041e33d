"""Many conversations at once, over the limit of the window: throughput, and what becomes of memory."""

import itertools
from collections import deque
from collections.abc import Iterator

from bench import texts
from bench.measure import Phase, Run, side_by_side

WORKERS = 16
CONVERSATIONS = 200
TURNS = 20
MESSAGE_TOKENS = 200
SECONDS_PER_MINUTE = 60
QUARTERS = 4

Talks = deque[tuple[str, texts.Conversation]]
Fresh = Iterator[tuple[str, texts.Conversation]]


def _fresh(name: str, tokens: int = MESSAGE_TOKENS) -> Fresh:
    """Yield new conversations without end."""
    for seed in itertools.count(1):
        yield f"{name}-{seed}", texts.Conversation(seed, tokens)


async def _interleaved(run: Run, phase: Phase, talks: Talks, turns: int, renewed: Fresh | None = None) -> None:
    """Take a turn of each conversation in its turn; one that has had `turns` goes, or is replaced by a new one."""

    async def work() -> None:
        while talks and not phase.over:
            session, talk = talks.popleft()
            answer = await phase.ask(run.client, talk.ask(), session)
            if answer is None:
                continue
            talk.hear(answer.text)
            if talk.turns < turns:
                talks.append((session, talk))
            elif renewed is not None:
                talks.append(next(renewed))

    await side_by_side(WORKERS, work)


async def conversations(run: Run) -> None:
    """S4: 200 conversations of 20 turns, 16 requests at a time; from turn 12 on they are over the limit."""
    warm: Talks = deque(itertools.islice(_fresh("warm"), WORKERS))
    await _interleaved(run, Phase("warm", run.bounds.most_s), warm, 3)
    talks: Talks = deque(itertools.islice(_fresh("many"), CONVERSATIONS))
    async with run.phase("16 at a time", lag=True) as phase:
        await _interleaved(run, phase, talks, TURNS)


async def steady(run: Run) -> None:
    """steady: S4 for minutes, finished conversations replaced by new ones: does memory grow?"""
    fresh = _fresh("steady")
    talks: Talks = deque()
    for place, (session, talk) in enumerate(itertools.islice(fresh, CONVERSATIONS)):
        talk.turns = place % TURNS  # so that they do not all end at the same time
        talks.append((session, talk))
    async with run.phase("16 at a time", most_s=run.bounds.minutes * SECONDS_PER_MINUTE, lag=True) as phase:
        await _interleaved(run, phase, talks, TURNS, fresh)


async def sessions(run: Run) -> None:
    """sessions: 10,000 sessions of three turns, a quarter at a time; then one turn more of each of them."""
    number = run.bounds.sessions // QUARTERS
    fresh, everybody = _fresh("session"), list[tuple[str, texts.Conversation]]()
    for quarter in range(1, QUARTERS + 1):
        talks: Talks = deque(itertools.islice(fresh, number))
        everybody += talks
        async with run.phase(f"sessions to {quarter * number:,}", lag=True) as phase:
            await _interleaved(run, phase, talks, 3)
        figures = run.phases[phase.name]
        if "rss_end_mib" in figures:
            figures["session_kib"] = (figures["rss_end_mib"] - figures["rss_start_mib"]) * 1024 / number
    talks = deque(everybody)
    async with run.phase("all once more", lag=True) as phase:
        await _interleaved(run, phase, talks, 4)
