"""The demo's last part: the early fact, the totals with what must agree in them, and how to go on."""

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from transom.proxy.cli.demo.conversation import Held
from transom.proxy.cli.demo.readings import Totals, read_totals
from transom.proxy.cli.demo.screen import Screen
from transom.proxy.cli.demo.script import FACT, QUESTION, TURNS
from transom.proxy.cli.demo.server import POLL_S, Proxy

SETTLE_S = 5.0
SHOWN = re.compile(r"I was shown (\d+) messages")


def show_fact(screen: Screen, held: Held) -> bool:
    """Show whether the model still knows what was said first, and from where; return whether a summary tells it."""
    played = held.turns[TURNS.index(QUESTION)]
    sent, texts = held.timeline.sent(played.last.request), held.timeline.texts()
    holding = [at for at, text in enumerate(texts[: sent.length]) if FACT in text]
    number = next((at for at, told in enumerate(held.summaries, 1) if told.id == sent.summary), 0)
    body = held.summaries[number - 1].body if number else ""
    line = next((line for line in body.splitlines() if FACT in line), "")
    screen.title("Does the model still know what was said at the beginning?")
    screen.rows([("traveller", "", played.text), ("model", "", played.answer)])
    if FACT not in played.answer:
        held_by = f"Summary {number} holds it." if line else "No summary holds it."
        screen.check(f"It does not know. {held_by}", good=False)
        return False
    if sent.kept.intersection(holding) or not line:
        screen.check("It knows, but not from a summary: a message that says it still went upstream.", good=False)
        return False
    screen.check(
        f"It was said in message {holding[0] + 1} of the conversation. Neither that nor any other message with it was "
        f"among the {sent.messages} that went upstream of the {played.last.messages} sent; summary {number} was, with "
        "the line:",
        good=True,
    )
    screen.quote("", line, 1)
    return True


def show_totals(screen: Screen, proxy: Proxy, held: Held) -> bool:
    """Show the totals, and whether what must be equal is; return whether all of it is."""
    totals = _settled(proxy, held)
    saved = totals.received - totals.sent - totals.summaries_read - totals.summaries_written
    waiting = held.waiting(held.cut)
    main, beside = proxy.database_bytes()
    screen.title("Totals")
    screen.rows(
        [
            ("requests", f"{totals.requests:,}", f"in {len(held.turns)} turns"),
            ("prompt tokens the client sent", f"{totals.received:,}", ""),
            ("prompt tokens that went upstream", f"{totals.sent:,}", f"{totals.sent / totals.received:.0%} of them"),
            ("  repeating the request before", f"{totals.stable:,}", f"{totals.stable / totals.sent:.0%} of these"),
            (
                f"tokens for writing {totals.summaries} summaries",
                f"{totals.summaries_read + totals.summaries_written:,}",
                f"{totals.summaries_read:,} read, {totals.summaries_written:,} written",
            ),
            ("tokens saved after all", f"{saved:,}", f"{saved / totals.received:.0%} of what the client sent"),
            ("messages that summaries stand for", f"{held.summaries[-1].replaces if held.summaries else 0:,}", ""),
            (
                "messages cut without a summary",
                f"{len(held.cut):,}",
                f"no summary stands for {waiting:,} yet" if waiting else "later summaries stand for all",
            ),
            ("turns stopped by the tool-call cap", f"{totals.capped:,}", ""),
            ("sessions stored", f"{held.timeline.sessions:,}", "known by content, no session id"),
            ("messages stored", f"{held.timeline.messages:,}", "all, whatever went upstream"),
            ("database", f"{main / 1024:,.0f} KiB", f"and {beside / 1024:,.0f} KiB of write-ahead log"),
        ]
    )
    checks = list(_what_must_agree(held, totals))
    for text, good in checks:
        screen.check(text, good=good)
    return all(good for _, good in checks)


def _settled(proxy: Proxy, held: Held) -> Totals:
    """Return the totals once a summary that is still being written in the background is told of everywhere."""
    until = time.monotonic() + SETTLE_S
    while True:
        totals = read_totals(proxy)
        held.timeline.refresh()
        held.summaries = held.timeline.summaries()
        if totals.summaries == len(held.summaries) or time.monotonic() > until:
            return totals
        time.sleep(POLL_S)


def _what_must_agree(held: Held, totals: Totals) -> Iterator[tuple[str, bool]]:
    """Yield what two independent sources say, and whether they say the same."""
    readings = [reading for played in held.turns for reading in played.readings]
    sums = [sum(getattr(reading, name) for reading in readings) for name in ("before", "sent", "stable")]
    yield "The headers of all responses add up to what /metrics says.", sums == [*totals[:3]]
    yield "The conversation is one session.", held.timeline.sessions == 1
    yield "Every request of the client was counted once.", len(readings) == totals.requests
    yield "No request went upstream over its limit.", all(reading.sent <= reading.limit for reading in readings)
    yield "/metrics and /admin tell of equally many summaries.", totals.summaries == len(held.summaries)
    items = held.timeline.items_of(held.cut)
    yield (
        f"The {len(held.cut)} messages listed above as cut are the {totals.cut} items that /metrics counts (a text, a "
        "tool call, a tool's result).",
        items == totals.cut,
    )
    told = [
        (int(found[1]), sent)
        for played, sent in zip(held.turns, held.sent, strict=True)
        if (found := SHOWN.search(played.answer))
    ]
    right = sum(1 for model, proxy in told if model == proxy)
    yield (
        f"In {len(told)} answers the model says how many messages it was shown: as many as listed above in {right}.",
        right == len(told) > 0,
    )


def show_way_on(screen: Screen) -> None:
    """Show how to use the proxy for one's own client, and how to choose a policy."""
    command = _command()
    screen.title("Point your own client at it")
    screen.commands(
        "# in front of any OpenAI-compatible server; the client's own key goes through\n"
        f"{command} serve --upstream https://api.openai.com/v1\n"
        "\n"
        "# then, in Python, nothing but the address changes\n"
        'client = OpenAI(base_url="http://127.0.0.1:8000/v1")\n'
        "\n"
        "curl http://127.0.0.1:8000/v1/chat/completions \\\n"
        "  -H 'content-type: application/json' \\\n"
        '  -H "authorization: Bearer $OPENAI_API_KEY" \\\n'
        """  -d '{"model": "gpt-4o-mini",\n"""
        """       "messages": [{"role": "user", "content": "Hello"}]}'"""
    )
    screen.title("Choose a policy: --preset NAME, or policies.default.preset in config.yaml")
    screen.rows(
        [
            ("chat", "", "the default: the model's whole window, old turns become a summary when it is full"),
            ("voice", "", "4,000 tokens and 20 items at most: short prompts, quick answers"),
            ("agent", "", "old tool results are cleared first; many calls per turn, but no endless repetition"),
            ("recall", "", "chat, and old messages that match the newest question are brought back"),
        ]
    )
    screen.commands(f"\n# what a configuration comes to, before anything is sent\n{command} check")


def _command() -> str:
    """Return how to call this program from here."""
    if shutil.which("transom"):
        return "transom"
    own = Path(sys.executable).with_name("transom")
    return str(own.relative_to(Path.cwd())) if own.is_relative_to(Path.cwd()) else str(own)
