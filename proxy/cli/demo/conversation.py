"""The demo's conversation: has each turn played, and shows it together with what the proxy says it did."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import openai

from transom.proxy.cli.demo.client import Played, Traveller
from transom.proxy.cli.demo.readings import Timeline, Told
from transom.proxy.cli.demo.screen import Screen
from transom.proxy.cli.demo.script import STREAMED, TURNS
from transom.proxy.cli.demo.server import POLICY, Proxy

PACE_S = 0.15
"""Between two turns on a terminal, so that they can be followed."""


@dataclass(slots=True)
class Held:
    """A conversation: its turns, how many messages went upstream with each turn's last request, the timeline."""

    timeline: Timeline
    turns: list[Played] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    summaries: list[Told] = field(default_factory=list)


def hold(proxy: Proxy, screen: Screen) -> Held:
    """Hold the conversation and show it turn by turn. Raises ProxyFailed."""
    _introduce(proxy, screen)
    held = Held(Timeline(proxy))
    traveller = Traveller(proxy.url)
    try:
        for number, text in enumerate(TURNS, 1):
            held.turns.append(traveller.say(text, streamed=number in STREAMED))
            held.timeline.refresh()
            _show_turn(screen, held)
            _show_folds(screen, held)
            _show_cuts(screen, held)
            _show_cap(screen, held.turns[-1])
            if screen.is_terminal:
                time.sleep(PACE_S)
    finally:
        traveller.close()
    return held


def _introduce(proxy: Proxy, screen: Screen) -> None:
    screen.text(
        f"A real proxy runs at {proxy.url}, in a process and a folder of its own. Through it the official openai "
        f"client {openai.__version__} holds a conversation of {len(TURNS)} turns with the built-in model transom/demo, "
        "a set of rules that runs offline and is no language model. The client does what clients do: it sends the "
        "whole conversation each time. All numbers are the proxy's: response headers, /admin, /metrics."
    )
    screen.title("The window is made small, so that it has something to do:")
    screen.yaml(POLICY)
    screen.text(
        "\nA line is a turn, with the numbers of its last request. saved: tokens that did not go upstream; reuse: "
        "share of what did go that repeats the request before byte for byte, which a provider's prompt cache can "
        "serve; ~ streamed. The tools' schemas (the same in each request) are not counted.",
        style="dim",
    )
    screen.heading()


def _show_turn(screen: Screen, held: Held) -> None:
    played = held.turns[-1]
    last = played.last
    sent = held.timeline.sent(last.request)
    held.sent.append(sent.messages)
    saved = last.before - last.sent
    screen.turn(
        (
            str(len(held.turns)),
            f"{'~ ' if played.streamed else ''}{played.text}",
            _calls(played.rounds),
            f"{last.messages:,}",
            f"{last.before:,}",
            f"{sent.messages:,}",
            f"{last.sent:,}",
            f"{saved / last.before:.0%}" if saved else "–",
            f"{last.stable / last.sent:.0%}" if last.stable else "–",
        ),
        shrunk=saved > 0,
    )


def _show_folds(screen: Screen, held: Held) -> None:
    """Tell of the summaries that are new."""
    known, held.summaries = held.summaries, held.timeline.summaries()
    numbers = {told.id: at for at, told in enumerate(held.summaries, 1)}
    waited = {
        held.timeline.sent(reading.request).summary
        for reading in held.turns[-1].readings
        if "compressed" in reading.window
    }
    for told in held.summaries[len(known) :]:
        previous = held.summaries[numbers[told.previous] - 1] if told.previous else None
        start = previous.replaces if previous else 0
        messages = told.replaces - start
        tokens = held.timeline.tokens_of(range(start, told.replaces)) + (previous.tokens if previous else 0)
        screen.event(
            f"summary {numbers[told.id]}",
            f"{f'summary {numbers[previous.id]} and ' if previous else ''}{messages} messages, {tokens:,} tokens → "
            f"{told.tokens:,} tokens{'' if told.id in waited else ', made in the background'}",
            "yellow",
        )
        _quote_summary(screen, previous, told)


def _quote_summary(screen: Screen, previous: Told | None, told: Told) -> None:
    """Show a summary's beginning, or what it holds that the one before did not."""
    if previous is None:
        screen.quote("", told.body, 3)
        for constraint in told.constraints:
            screen.quote("kept word for word: ", f"“{constraint}”", 2)
        return
    known = set(previous.body.splitlines())
    news = [line for line in told.body.splitlines() if line not in known]
    if news:
        screen.quote("new in it: ", " ".join(news), 2)
    else:
        screen.quote("begins as before: ", told.body, 1)


def _show_cuts(screen: Screen, held: Held) -> None:
    """Tell of what was left out without a summary."""
    for reading in held.turns[-1].readings:
        if "cut" in reading.window:
            cut = held.timeline.sent(reading.request).left_out
            screen.event(
                "cut",
                f"{len(cut)} messages, {held.timeline.tokens_of(cut):,} tokens: the newest turns alone are too large",
                "magenta",
            )
            screen.quote("", "no summary holds them yet; the next one will", 1)


def _show_cap(screen: Screen, played: Played) -> None:
    """Tell of a turn that met the tool-call cap."""
    met = next((reading for reading in played.readings if reading.tool_limit), None)
    if met is not None:
        screen.event("tool-call cap", f"{sum(played.rounds)} calls made; the model had to answer without more", "red")
        screen.quote("it said: ", played.answer, 2)


def _calls(rounds: Sequence[int]) -> str:
    """Write how many calls a turn made, and in which order."""
    if len(rounds) <= 1:
        return "" if not rounds else "1" if rounds[0] == 1 else f"{rounds[0]} parallel"
    return f"{len(rounds)} chained" if set(rounds) == {1} else " then ".join(map(str, rounds))
