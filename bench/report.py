"""Shows what was measured: tables for the terminal and in Markdown, and JSON with all there is."""

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import transom
from bench.measure import Figures

PACKAGES = ("uvicorn", "uvloop", "httptools", "starlette", "aiohttp", "msgspec", "tiktoken", "sqlalchemy")
DIRECT, RELAY = "direct", "relay"
NOTHING = "–"
FILE_WIDTH = 160
QUIET_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, the figure it shows and its decimals."""

    heading: str
    figure: str
    decimals: int = 0


TIMES = (
    Column("requests", "requests"),
    Column("req/s", "rps"),
    Column("÷ relay", "rps_ratio", 2),
    Column("CPU µs", "cpu_us"),
    Column("÷ relay", "cpu_ratio", 2),
    Column("ms", "ms", 2),
    Column("added", "added_ms", 2),
    Column("p99", "p99_ms", 1),
    Column("worst", "worst_ms", 1),
    Column("stalled", "stalled"),
    Column("1st token", "first_ms", 2),
    Column("loop lag", "lag_ms", 1),
    Column("kB up", "upstream_kb", 1),
    Column("summaries", "summaries"),
    Column("failures", "failures"),
)
MEMORY = (
    Column("MiB before", "rss_start_mib"),
    Column("MiB after", "rss_end_mib"),
    Column("KiB / 1,000 requests", "slope_kib"),
    Column("KiB / session", "session_kib", 1),
)
OFTEN_ZERO = frozenset({"failures", "summaries"})  # columns that are left out where all of them are


@dataclass(slots=True)
class Results:
    """Figures by scenario, phase and server; `starts` are seconds from a command to the first answer."""

    scenarios: dict[str, dict[str, dict[str, Figures]]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    starts: dict[str, list[float]] = field(default_factory=dict)
    pinned: bool = False
    load_before: float = 0

    def add(self, scenario: str, server: str, phases: dict[str, Figures]) -> None:
        """Take in the phases of one scenario on one server, and set them against what is there of others."""
        for name, figures in phases.items():
            of_all = self.scenarios.setdefault(scenario, {}).setdefault(name, {})
            of_all[server] = figures
            direct, relay = of_all.get(DIRECT, {}), of_all.get(RELAY, {})
            if server != DIRECT and "ms" in direct and "ms" in figures:
                figures["added_ms"] = figures["ms"] - direct["ms"]
            for ratio, figure in (("rps_ratio", "rps"), ("cpu_ratio", "cpu_us")):
                if server not in (DIRECT, RELAY) and relay.get(figure) and figure in figures:
                    figures[ratio] = figures[figure] / relay[figure]


def machine(results: Results) -> dict[str, str]:
    """Return what the figures were measured on."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        "processor": models[0] if models else platform.processor() or "unknown",
        "cores": f"{psutil.cpu_count()}, " + ("the server on one of its own" if results.pinned else "not pinned"),
        "load before": f"{results.load_before:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Transom": transom.__version__,
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text("utf-8").splitlines() if file.exists() else []


@dataclass(frozen=True, slots=True)
class Shown:
    """A table as text: its first two columns are phase and server."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def _tables(results: Results) -> Iterator[Shown]:
    """Yield a table of times and one of memory for each scenario, without the columns nobody has a figure for."""
    for scenario, phases in results.scenarios.items():
        rows = [(phase, server, figures) for phase, servers in phases.items() for server, figures in servers.items()]
        for title, columns in ((results.titles[scenario], TIMES), (f"{scenario}: memory", MEMORY)):
            shown = [column for column in columns if _worth_showing(column, [figures for _, _, figures in rows])]
            cells = [
                [phase, server, *(_cell(figures, column) for column in shown)]
                for phase, server, figures in rows
                if any(column.figure in figures for column in shown)
            ]
            if cells:
                yield Shown(title, ["phase", "server", *(column.heading for column in shown)], cells)


def _worth_showing(column: Column, rows: Sequence[Figures]) -> bool:
    there = [figures[column.figure] for figures in rows if column.figure in figures]
    return any(there) if column.figure in OFTEN_ZERO else bool(there)


def _cell(figures: Figures, column: Column) -> str:
    value = figures.get(column.figure)
    return NOTHING if value is None else f"{value:,.{column.decimals}f}"


def _starts(results: Results) -> str:
    told = (f"{server} {min(seconds):.2f} s" for server, seconds in results.starts.items())
    return "From the command to the first answer, at best: " + ", ".join(told) + "." if results.starts else ""


def show(results: Results, console: Console) -> None:
    """Print all tables."""
    if not console.is_terminal:
        console.width = FILE_WIDTH
    for shown in _tables(results):
        table = Table(title=shown.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=0)
        for place, heading in enumerate(shown.headings):
            table.add_column(heading, justify="left" if place < 2 else "right")
        before = ""
        for phase, *cells in shown.rows:
            table.add_row("" if phase == before else phase, *cells)
            before = phase
        console.print(table)
    console.print(_starts(results))
    if results.load_before > QUIET_LOAD:
        console.print(
            f"The machine was busy before the run (load {results.load_before:.2f}, quiet is below {QUIET_LOAD}): "
            "do not trust these figures.",
            style="bold",
        )


def markdown(results: Results) -> str:
    """Return the machine and all tables, ready to be pasted."""
    lines = ["| | |", "|---|---|", *(f"| {name} | {told} |" for name, told in machine(results).items())]
    for shown in _tables(results):
        rule = _row(["---", "---", *("---:" for _ in shown.headings[2:])])
        lines += ["", f"**{shown.title}**", "", _row(shown.headings), rule, *map(_row, shown.rows)]
    return "\n".join([*lines, "", _starts(results), ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def as_json(results: Results) -> str:
    """Return everything as JSON."""
    told = {"machine": machine(results), "start_s": results.starts, "scenarios": results.scenarios}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"
