"""`python -m bench`: Transom beside a relay that does nothing, on this machine, against a made-up model server."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from bench import report
from bench.measure import Bounds, GaveUp
from bench.runner import MODEL_PORT, TRANSOM, Plan, measure
from bench.scenarios.catalogue import SCENARIOS, USUAL
from bench.servers import NotRunning
from bench.stalls import places

console = Console()


def bench(  # noqa: PLR0913  (they are the options)
    scenario: Annotated[
        str, typer.Option(help=f"Comma-separated, of {', '.join(SCENARIOS)}; by default those that are short.")
    ] = ",".join(USUAL),
    repeat: Annotated[int, typer.Option(min=1, help="Run each so often and show medians.")] = 1,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=URL", help="Another proxy, in front of http://127.0.0.1:9100/v1; may be repeated."),
    ] = None,
    model_port: Annotated[int, typer.Option(help="Where those find the model server instead.")] = MODEL_PORT,
    only: Annotated[str, typer.Option(help="Comma-separated, of direct, relay, transom and the targets.")] = "",
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this file.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Run Transom alone under cProfile and write this file.")] = None,
    stalls: Annotated[
        Path | None, typer.Option(help="Run Transom alone; write its stacks whenever its loop is busy for 20 ms.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.2, help="Seconds of a phase that goes on for a time.")] = 5,
    most: Annotated[float, typer.Option(min=1, help="Seconds after which any other phase ends.")] = 60,
    sessions: Annotated[int, typer.Option(min=100, help="Sessions of the scenario `sessions`.")] = 10_000,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes of the scenario `steady`.")] = 3,
) -> None:
    """Measure Transom beside a relay that does nothing. Nothing else should run on the machine meanwhile."""
    plan = Plan(
        scenarios=_known(scenario),
        repeat=repeat,
        bounds=Bounds(seconds, most, sessions, minutes),
        targets=[_named(one) for one in target or ()],
        model_port=model_port,
        only=[TRANSOM] if profile or stalls else [name for name in only.split(",") if name],
        transom=_command(profile, stalls),
    )
    if stalls is not None:
        stalls.write_text("", "utf-8")
    results = _measured(plan)
    report.show(results, console)
    if json is not None:
        json.write_text(report.as_json(results), "utf-8")
    if markdown is not None:
        markdown.write_text(report.markdown(results), "utf-8")
    if stalls is not None:
        for times, place in places(stalls.read_text("utf-8")):
            console.print(f"{times} times: {place}", soft_wrap=True)
    if profile is not None:
        console.print(f"The times above are slower by the profiler. To read it: {sys.executable} -m pstats {profile}")


def _measured(plan: Plan) -> report.Results:
    """Run the plan; end with one sentence where it could not be run."""
    failed: BaseException
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the servers would be left running
    try:
        return uvloop.run(measure(plan, console.print))
    except* (NotRunning, GaveUp) as group:
        failed = group
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    console.print(str(failed), style="red", markup=False)
    raise typer.Exit(1)


def _known(scenarios: str) -> list[str]:
    names = scenarios.split(",")
    for name in names:
        if name not in SCENARIOS:
            raise typer.BadParameter(f"{name} is none of {', '.join(SCENARIOS)}", param_hint="--scenario")
    return names


def _named(target: str) -> tuple[str, str]:
    name, _, url = target.partition("=")
    if not name or not url.startswith("http://"):
        raise typer.BadParameter(f"{target} is not NAME=http://…", param_hint="--target")
    return name, url


def _command(profile: Path | None, stalls: Path | None) -> list[str]:
    """Return how Python is to run Transom."""
    if profile is not None and stalls is not None:
        raise typer.BadParameter("excludes --profile", param_hint="--stalls")
    for kind, file in (("profile", profile), ("stalls", stalls)):
        if file is not None:
            return ["-m", "bench.instrumented", kind, str(file.absolute())]
    return ["-m", "transom"]


if __name__ == "__main__":
    typer.run(bench)
