"""`transom serve`: settles the configuration and hands it to the server; it knows no sockets and no requests."""

from dataclasses import dataclass
from pathlib import Path

import structlog
import typer

from transom import __version__
from transom.proxy.cli.source import Source, find_source, let_import_beside
from transom.proxy.config.load import for_upstream
from transom.proxy.config.places import ConfigError, Fault, Place
from transom.proxy.config.review import review
from transom.proxy.config.watch import LiveSettings
from transom.proxy.config.windows import model_map


@dataclass(frozen=True, slots=True)
class Request:
    """The options of one `serve`; None is not given."""

    config: Path | None = None
    host: str | None = None
    port: int | None = None
    workers: int | None = None
    upstream: str | None = None
    preset: str | None = None


def run_server(request: Request) -> int:
    """Serve until told to stop; return the exit code.

    Raises ConfigError, and BadParameter for options that exclude each other.
    """
    source = _source(request)
    let_import_beside(source)
    live = LiveSettings(source.read, path=source.path)
    server = live.current.config.server
    workers = request.workers or server.workers
    if workers > 1 and live.current.config.storage.is_sqlite:
        raise ConfigError(Fault(Place("--workers"), "", "more than one worker needs PostgreSQL; set storage.url"))
    from transom.proxy.logs import configure  # noqa: PLC0415
    from transom.proxy.server import serve  # noqa: PLC0415

    configure()
    log = structlog.get_logger()
    host, port = request.host or server.host, server.port if request.port is None else request.port
    log.info("starting", configuration=source.name, version=__version__)
    for warning in review(live.current, host, port).warnings:
        log.warning(warning)
    model_map.cache_clear()  # what it says of our models stands in the settings; a change of the file reads it again
    return serve(live, host=host, port=port, workers=workers)


def _source(request: Request) -> Source:
    if request.upstream is None:
        if request.preset is not None:
            raise typer.BadParameter(
                "goes with --upstream; in a file, a policy names its preset", param_hint="--preset"
            )
        return find_source(request.config)
    if request.config is not None:
        raise typer.BadParameter("excludes --config; name the address in the file", param_hint="--upstream")
    upstream, preset = request.upstream, request.preset or "chat"
    return Source("--upstream", None, lambda: for_upstream(upstream, preset))
