"""The demo's conversation: has each turn played, and shows it together with what the proxy says it did."""

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import openai

from transom.proxy.cli.demo.client import Played, Traveller
from transom.proxy.cli.demo.readings import Timeline, Told
from transom.proxy.cli.demo.screen import Screen
from transom.proxy.cli.demo.script import STREAMED, TURNS
from transom.proxy.cli.demo.server import POLICY, RECENT_TURNS, Proxy

PACE_S = 0.15
"""Between two turns on a terminal, so that they can be followed."""


@dataclass(slots=True)
class Held:
    """A conversation as it goes.

    Attributes:
        sent: how many messages went upstream with each turn's last request.
        cut: per position of a message that was left out without a summary, the number of the turn when it was.
    """

    timeline: Timeline
    turns: list[Played] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    summaries: list[Told] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)

    def turn_at(self, position: int) -> int:
        """Return the number of the turn that the message at this position belongs to."""
        starts = [played.readings[0].messages - 2 for played in self.turns]  # less the system message, and itself
        return bisect_right(starts, position)

    def waiting(self, positions: Iterable[int]) -> int:
        """Return how many of the messages at these positions no summary stands for yet."""
        replaces = self.summaries[-1].replaces if self.summaries else 0
        return sum(1 for position in positions if position >= replaces)


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
            cut = _note_cut(held)
            _show_folds(screen, held)
            _show_cut(screen, held, cut)
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
            f"{f'summary {numbers[previous.id]} and ' if previous else ''}{messages} messages, {tokens:,} → "
            f"{told.tokens:,} tokens{'' if told.id in waited else ' in the background'}",
            "yellow",
        )
        _quote_summary(screen, previous, told)
        before = Counter(turn for position, turn in held.cut.items() if start <= position < told.replaces)
        cut = [f"{number} were cut at turn {turn}" for turn, number in before.items()]
        if cut:
            screen.quote("of these messages, ", ", ".join(cut), 2)


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


def _note_cut(held: Held) -> list[int]:
    """Note, and return, the positions that the last turn's requests were the first to leave out without a summary."""
    cut: list[int] = []
    for reading in held.turns[-1].readings:
        if "cut" in reading.window:
            left_out = held.timeline.sent(reading.request).left_out
            cut += (position for position in left_out if position not in held.cut)
            held.cut.update(dict.fromkeys(cut, len(held.turns)))
    return cut


def _show_cut(screen: Screen, held: Held, cut: Sequence[int]) -> None:
    """Tell of what was left out without a summary."""
    if not cut:
        return
    first, last = held.turn_at(min(cut)), held.turn_at(max(cut))
    recent = first > len(held.turns) - RECENT_TURNS
    screen.event(
        "cut",
        f"{len(cut)} messages of {f'turns {first}–{last}' if first < last else f'turn {last}'}, "
        f"{held.timeline.tokens_of(cut):,} tokens: the {'newest turns are' if recent else 'request was'} too large",
        "magenta",
    )
    waiting = held.waiting(cut)
    if waiting:
        screen.quote("", f"no summary stands for {'them' if waiting == len(cut) else f'{waiting} of them'} yet", 1)


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
