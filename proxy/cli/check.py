"""`transom check`: prints what a configuration comes to, for a person or as JSON; it calls nobody."""

import sys
from dataclasses import asdict
from pathlib import Path

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from transom.proxy.cli.source import find_source, let_import_beside
from transom.proxy.config.places import ConfigError
from transom.proxy.config.review import Review, RouteReview, review
from transom.proxy.config.settings import compile_settings


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
        _print_tables(source.name, found)
    return 0


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def _print_tables(name: str, found: Review) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, soft_wrap=not sys.stdout.isatty())
    table = Table(box=SIMPLE, title=f"{name} is valid", title_justify="left")
    for heading in ("tenant", "model", "policy", "does", "messages", "window", "items", "tool calls", "text goes to"):
        table.add_column(
            heading, justify="right" if heading in ("messages", "window", "items", "tool calls") else "left"
        )
    for route in found.routes:
        table.add_row(*_row(route))
    console.print(table)
    console.print("messages: tokens of messages one request may hold, tools and answer left aside.", style="dim")
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)


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
