"""Requests that are large: how long they take, and how long everybody else waits meanwhile."""

from bench import texts
from bench.measure import Phase, Run, closed_loop

MESSAGES = 1_000
HISTORIES = 10
BODY_BYTES = 20_000_000
SMALL_MESSAGES = 20_000


async def _warm(run: Run) -> None:
    requests = ((texts.short(10_000_000 + seed), f"warm-{seed}") for seed in range(50))
    await closed_loop(run, Phase("warm", run.bounds.most_s), 1, requests)


async def histories(run: Run) -> None:
    """S5: 1,000 messages of 100,000 tokens: in a session that is new (cold), then with a turn more (warm)."""
    await _warm(run)
    cold = [(texts.body(texts.long_history(MESSAGES, seed)), f"cold-{seed}") for seed in range(1, HISTORIES + 1)]
    async with run.phase("cold", lag=True) as phase:
        await closed_loop(run, phase, 1, iter(cold))
    messages = texts.long_history(MESSAGES, 1)
    warm = []
    for seed in range(HISTORIES):
        messages += [
            texts.message("assistant", texts.text(92, 77_000 + seed)),
            texts.message("user", texts.text(92, 78_000 + seed)),
        ]
        warm.append((texts.body(messages), "cold-1"))
    async with run.phase("warm", lag=True) as phase:
        await closed_loop(run, phase, 1, iter(warm))


async def bodies(run: Run) -> None:
    """body: 20 MB in one message, then in 20,000 messages: how long does the event loop stand still?"""
    await _warm(run)
    one = texts.text(1_000, 1) + " "
    single = texts.body([texts.SYSTEM, texts.message("user", one * (BODY_BYTES // len(one)))])
    async with run.phase("one message", lag=True) as phase:
        await closed_loop(run, phase, 1, iter([(single, "body-1")]))
    small = [texts.message("assistant" if n % 2 else "user", texts.text(130, n)) for n in range(SMALL_MESSAGES - 1)]
    many = texts.body(small)
    async with run.phase(f"{SMALL_MESSAGES:,} messages", lag=True) as phase:
        await closed_loop(run, phase, 1, iter([(many, "body-2")]))
