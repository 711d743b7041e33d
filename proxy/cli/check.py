"""`transom check`: prints what a configuration comes to, for a person or as JSON; it calls nobody."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from transom.proxy.cli.source import find_source, let_import_beside
from transom.proxy.config.places import ConfigError
from transom.proxy.config.review import Review, RouteReview, review
from transom.proxy.config.settings import compile_settings

HEADINGS = ("tenant", "model", "policy", "does", "messages", "window", "items", "tool calls", "text goes to")
NUMBERS = frozenset({"messages", "window", "items", "tool calls"})
BLOCK_INDENT = max(map(len, HEADINGS)) + 2
UNBOUNDED = 100_000
"""Columns: what a table is measured within, to learn what it needs."""


def check(path: Path | None, *, as_json: bool) -> int:
    """Print the review of a configuration; return 0, or 1 where it is not valid."""
    source = find_source(path)
    let_import_beside(source)
    try:
        settings = compile_settings(source.read())
    except ConfigError as error:
        if as_json:
            _print_json({"valid": False, "config": source.name, "errors": [str(fault) for fault in error.faults]})
        else:
            sys.stderr.write(f"{error}\n")
        return 1
    found = review(settings)
    if as_json:
        routes = [asdict(route) for route in found.routes]
        _print_json({"valid": True, "config": source.name, "routes": routes, "warnings": found.warnings})
    else:
        _print_for_people(source.name, found)
    return 0


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def _print_for_people(name: str, found: Review) -> None:
    table = _table(found.routes)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    width = Measurement.get(console, console.options.update(max_width=UNBOUNDED), table).maximum
    if not console.is_terminal:
        console.width = width
    console.print(f"{name} is valid", style="italic")
    if width <= console.width:
        console.print(table)
    else:
        console.print()
        for route in found.routes:
            _print_block(console, route)
    # Sentences wrap between words on a terminal; elsewhere a line is whole, for who searches in it.
    whole = not console.is_terminal
    note = "messages: tokens of messages one request may hold, tools and answer left aside."
    console.print(note, style="dim", soft_wrap=whole)
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=whole)


def _table(routes: Iterable[RouteReview]) -> Table:
    table = Table(box=SIMPLE)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in NUMBERS else "left")
    for route in routes:
        table.add_row(*_row(route))
    return table


def _print_block(console: Console, route: RouteReview) -> None:
    for heading, value in zip(HEADINGS, _row(route), strict=True):
        console.print(f"{heading + ':':<{BLOCK_INDENT}}{value}")
    console.print()


def _row(route: RouteReview) -> tuple[str, ...]:
    does = ", ".join(route.strategy) or "forwards as it is"
    return (
        route.tenant,
        route.model,
        route.policy,
        does if route.enforce == "on" else f"{does} ({route.enforce})",
        _number(route.message_tokens, "no limit"),
        _number(route.window_tokens, "unknown"),
        _number(route.max_context_items, "no limit"),
        _number(route.tool_calls_cap, "no cap"),
        _destinations(route),
    )


def _number(value: int | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:,}"


def _destinations(route: RouteReview) -> str:
    if route.summaries_go_to in (None, route.requests_go_to):
        return route.requests_go_to
    return f"{route.requests_go_to}; summaries: {route.summaries_go_to}"
