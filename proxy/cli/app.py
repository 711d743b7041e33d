"""The tree of commands: names, options and exit codes; what a command does stands in a file of its own.

Exit codes: 0 done, 1 it could not be done, 2 the command was not understood. What only one command needs is imported
there, so that `serve` starts without the libraries of the others.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

import transom
from transom.proxy.config.places import ConfigError
from transom.storage.left_out import left_out

app = typer.Typer(
    name="transom",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys = typer.Typer(help="Keys of tenants.", no_args_is_help=True, rich_markup_mode=None)
config = typer.Typer(help="The configuration file.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(keys, name="keys")
imports = typer.Typer(help="Configurations of other proxies.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config, name="config")
app.add_typer(imports, name="import")
database = typer.Typer(help="The database, without serving.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(database, name="db")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="The configuration; ./config.yaml or a built-in one by default."
    ),
]
FileArgument = Annotated[Path | None, typer.Argument(metavar="FILE", help="The same as --config FILE.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"transom {transom.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """An OpenAI-compatible LLM proxy with automatic context windowing."""


@app.command("serve")
def serve_command(
    config_path: ConfigOption = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; overrides server.host.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=0, max=65535, help="Port; overrides server.port.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Processes; overrides server.workers.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="Run without a file, in front of this OpenAI-compatible address.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --upstream: voice, chat (default), agent or recall.")
    ] = None,
) -> None:
    """Run the proxy."""
    # structlog can paint errors with the first two, and follow the third: in 6 MB.
    with left_out("pygments", "rich", "greenlet"):
        from transom.proxy.cli.serve import Request, run_server  # noqa: PLC0415

    raise typer.Exit(run_server(Request(config_path, host, port, workers, upstream, preset)))


@app.command("demo", short_help="Show the proxy at work, without a key and offline.")
def demo_command() -> None:
    """Show the proxy at work: a long conversation with tools, turn by turn, without a key and offline."""
    from transom.proxy.cli.demo import demo  # noqa: PLC0415

    raise typer.Exit(demo())


@app.command("check", short_help="Validate the configuration; print what it comes to.")
def check_command(file: FileArgument = None, config_path: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Validate the configuration and print what it comes to, per tenant and model."""
    from transom.proxy.cli.check import check  # noqa: PLC0415

    if file is not None and config_path is not None:
        raise typer.BadParameter("names the configuration a second time; leave one out", param_hint="--config")
    raise typer.Exit(check(file or config_path, as_json=as_json))


@keys.command("new", short_help="Make a key for a tenant, and its hash.")
def new_key_command(as_json: JsonOption = False) -> None:
    """Make a key for a tenant, and the hash of it that goes into the configuration."""
    from transom.proxy.cli.keys import print_new_key  # noqa: PLC0415

    print_new_key(as_json=as_json)


@config.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of config.yaml, for editors."""
    from transom.proxy.cli.schema import print_schema  # noqa: PLC0415

    print_schema()


@database.command("upgrade")
def upgrade_command(config_path: ConfigOption = None) -> None:
    """Bring the schema up to date."""
    from transom.proxy.cli.db import upgrade  # noqa: PLC0415

    raise typer.Exit(upgrade(config_path))


@database.command("stats")
def stats_command(config_path: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print how many rows there are, and the size."""
    from transom.proxy.cli.db import stats  # noqa: PLC0415

    raise typer.Exit(stats(config_path, as_json=as_json))


@database.command("retain")
def retain_command(
    config_path: ConfigOption = None,
    now: Annotated[bool, typer.Option("--now", help="Even if that is more than half of 100 or more sessions.")] = False,
) -> None:
    """Erase what is older than retention_days."""
    from transom.proxy.cli.db import retain  # noqa: PLC0415

    raise typer.Exit(retain(config_path, now=now))


@imports.command("litellm", short_help="Write a configuration from that of a LiteLLM proxy.")
def import_litellm_command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The config.yaml of a LiteLLM proxy.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here, not to standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --output.")] = False,
) -> None:
    """Write a configuration from a LiteLLM proxy's; what is left out is named on standard error."""
    from transom.proxy.cli.import_litellm import import_litellm  # noqa: PLC0415

    raise typer.Exit(import_litellm(source, output, overwrite=force))


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app(prog_name="transom")
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
