"""One conversation that grows: does a turn cost more the longer the history is, and does a summary stall it?"""

from bench import texts
from bench.measure import Phase, Run
from bench.upstream import Pace

TURNS = 200
SHOWN = (10, 50, 100, 200)
AROUND = 5  # turns whose median stands for one
SUMMARY_TURNS = 60
SUMMARY_MS = 500.0
ANSWER_MS = 200.0
STALLED_MS = 150.0  # more than an answer takes


async def _talk(run: Run, phase: Phase, seed: int, turns: int) -> None:
    conversation = texts.Conversation(seed)
    for _ in range(turns):
        answer = await phase.ask(run.client, conversation.ask(), f"long-{seed}")
        if phase.over or answer is None:
            break
        conversation.hear(answer.text)


async def turns(run: Run) -> None:
    """S3: one conversation of 200 turns, the whole history sent each time."""
    await _talk(run, Phase("warm", run.bounds.most_s), 901, 5)
    async with run.phase(f"all {TURNS} turns") as phase:
        await _talk(run, phase, 1, TURNS)
    for turn in SHOWN:
        if len(phase.answers) >= turn:
            run.part(f"turn {turn}", phase.answers[turn - AROUND : turn])


async def slow_summaries(run: Run) -> None:
    """S6: 60 turns while a summary takes half a second: how many of them wait for one?"""
    await _talk(run, Phase("warm", run.bounds.most_s), 902, 5)
    for seed, (name, answer_ms) in enumerate((("an answer at once", 0), ("an answer in 200 ms", ANSWER_MS)), start=2):
        await run.upstream.set(Pace(answer_ms=answer_ms, summary_ms=SUMMARY_MS))
        async with run.phase(name) as phase:
            await _talk(run, phase, seed, SUMMARY_TURNS)
        run.phases[name]["stalled"] = sum(answer.ms > answer_ms + STALLED_MS for answer in phase.answers)
