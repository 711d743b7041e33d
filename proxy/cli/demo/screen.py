"""How the demo looks: one line per turn, highlighted events, a table of totals; it decides nothing and reads nothing.

At most 100 columns; without colours, and as wide, where the output is no terminal. From 80 columns on nothing but
commands to copy is wider than the screen.
"""

import sys
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

WIDTH = 100
NARROWEST = 80
INDENT = 6
SAID = 38
"""Columns of a turn's line that the user's words have at full width."""


class Screen:
    """Writes to standard output."""

    def __init__(self, asked: Sequence[int] = ()) -> None:
        self._asked = asked  # requests to end that came meanwhile
        terminal = sys.stdout.isatty()
        self.console = Console(
            width=None if terminal else WIDTH, highlight=False, markup=False, emoji=False, force_terminal=terminal
        )
        if terminal:
            self.console.width = min(max(self.console.width, NARROWEST), WIDTH)
        self.is_terminal = terminal
        self._said = SAID - (WIDTH - self.console.width)

    def title(self, text: str) -> None:
        """Write the first line, or the heading of a part."""
        self.console.print()
        self.console.print(text, style="bold")

    def text(self, text: str, style: str = "") -> None:
        """Write a paragraph."""
        for line in text.split("\n"):
            self.console.print(textwrap.fill(line, self.console.width), style=style, soft_wrap=True)

    def yaml(self, text: str) -> None:
        """Write a piece of configuration."""
        if self.is_terminal:
            shown = Syntax(text.rstrip(), "yaml", theme="ansi_dark", background_color="default")
            self.console.print(Padding(shown, (0, 0, 0, 2), expand=False))
        else:
            self.commands(text)

    def commands(self, text: str) -> None:
        """Write lines that may be copied: indented, never wrapped."""
        for line in text.splitlines():
            self.console.print(f"  {line}".rstrip(), soft_wrap=True)

    def heading(self) -> None:
        """Write the heads of the turns' columns."""
        line = Text(f"\n{'':>4}  {'':<{self._said}}  {'':<10}  {'client sent':>13}  {'went upstream':>13}\n")
        line.append(
            f"{'turn':>4}  {'the traveller says':<{self._said}}  {'tool calls':<10}  {'msgs':>5} {'tokens':>7}"
            f"  {'msgs':>5} {'tokens':>7}  {'saved':>5}  {'reuse':>5}"
        )
        self.console.print(line, style="dim")

    def turn(self, cells: Sequence[str], *, shrunk: bool) -> None:
        """Write a turn's line. `cells`: number, words, calls, messages and tokens in, out, saved, reused.

        Raises KeyboardInterrupt if it was asked to end and the exception of that moment got lost.
        """
        if self._asked:
            raise KeyboardInterrupt
        number, words, calls, *counts, saved, reuse = cells
        words = words if len(words) <= self._said else words[: self._said - 1] + "…"
        line = Text(f"{number:>4}  ", style="dim")
        line.append(f"{words:<{self._said}}  ", style="not dim")
        line.append(f"{calls:<10}  ", style="not dim cyan")
        line.append(f"{counts[0]:>5} {counts[1]:>7}  ", style="not dim")
        line.append(f"{counts[2]:>5} {counts[3]:>7}  ", style="not dim bold" if shrunk else "not dim")
        line.append(f"{saved:>5}", style="not dim green" if shrunk else "dim")
        line.append(f"  {reuse:>5}")
        self.console.print(line, no_wrap=True, overflow="crop")

    def event(self, what: str, text: str, style: str) -> None:
        """Write what the proxy did at a turn."""
        line = Text(" " * INDENT)
        line.append(what, style=f"bold {style}")
        line.append(f"  {self._beside(INDENT + len(what) + 2, text)}", style=style)
        self.console.print(line, soft_wrap=True)

    def quote(self, front: str, text: str, lines: int) -> None:
        """Write the beginning of a text, on so many lines at most, each with a bar before it."""
        margin = f"{'':>{INDENT}}│ "
        words = f"{front}{' '.join(text.split())}"
        shown = textwrap.wrap(words, self.console.width - len(margin), max_lines=lines, placeholder=" …")
        for line in shown:
            self.console.print(f"{margin}{line}", style="dim", soft_wrap=True)

    def rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Write a table: what, how many, and a note."""
        first, second = (max(len(row[at]) for row in rows) for at in (0, 1))
        for what, number, note in rows:
            line = Text(f"  {what:<{first}}  {number:>{second}}")
            line.append(f"  {self._beside(first + second + 6, note)}".rstrip(), style="dim")
            self.console.print(line, soft_wrap=True)

    def check(self, text: str, *, good: bool) -> None:
        """Write whether something holds."""
        front = "  ✓ " if good else "  ✗ "
        line = Text(front, style="green" if good else "bold red")
        line.append(self._beside(len(front), text), style="not bold default" if good else "")
        self.console.print(line, soft_wrap=True)

    def _beside(self, margin: int, text: str) -> str:
        """Wrap a text that begins behind so many columns, and goes on there."""
        return f"\n{'':{margin}}".join(textwrap.wrap(text, self.console.width - margin))
