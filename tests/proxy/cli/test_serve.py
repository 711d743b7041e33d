"""`transom serve`: which settings, address and number of workers reach the server."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import typer
from structlog.testing import capture_logs

from transom.proxy.cli.serve import Request, run_server
from transom.proxy.config.load import ConfigError
from transom.proxy.config.watch import LiveSettings

Served = list[tuple[LiveSettings, str, int, int]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Served:
    """Collect what the server is given, instead of serving."""
    calls: Served = []

    def serve(live: LiveSettings, *, host: str, port: int, workers: int = 1) -> int:
        calls.append((live, host, port, workers))
        return 7

    monkeypatch.chdir(tmp_path)
    # A stand-in, so that this test needs none of what the application is made of.
    server = ModuleType("transom.proxy.server")
    server.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transom.proxy.server", server)
    # The logging of the test process stays its own.
    monkeypatch.setattr("transom.proxy.logs.configure", lambda: None)
    return calls


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "own.yaml"
        path.write_text(text)
        return path

    return write


def test_the_file_says_where(served: Served, config: Callable[[str], Path]) -> None:
    path = config("server: {host: 0.0.0.0, port: 81, workers: 3}\nstorage: {url: postgresql+psycopg://h/d}")
    assert run_server(Request(config=path)) == 7
    ((live, *rest),) = served
    assert rest == ["0.0.0.0", 81, 3]
    assert live.path == path


def test_options_override_the_file(served: Served, config: Callable[[str], Path]) -> None:
    path = config("server: {host: 0.0.0.0, port: 81}\nstorage: {url: postgresql+psycopg://h/d}")
    run_server(Request(config=path, host="::1", port=0, workers=2))
    assert served[0][1:] == ("::1", 0, 2)


def test_without_a_file(served: Served) -> None:
    run_server(Request())
    live, host, port, workers = served[0]
    assert (live.path, list(live.current.models)) == (None, ["demo"])
    assert (host, port, workers) == ("127.0.0.1", 8000, 1)


@pytest.mark.parametrize(("preset", "used"), [(None, "chat"), ("agent", "agent")])
def test_in_front_of_one_address(served: Served, preset: str | None, used: str) -> None:
    run_server(Request(upstream="http://llm.example/v1", preset=preset))
    settings = served[0][0].current
    assert settings.anonymous is not None
    route = settings.anonymous.route("any")
    assert (route.model.api_base, route.policy.preset) == ("http://llm.example/v1", used)
    assert settings.anonymous.upstream_key == "client"
    assert served[0][0].reload()


def test_warnings_are_logged_at_the_start(served: Served, config: Callable[[str], Path]) -> None:
    with capture_logs() as logs:
        run_server(Request(config=config("policies: {default: {}}\nmodel_list: []")))
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("info", "starting"),
        ("warning", "model_list is empty, so every request is answered with 404"),
    ]


def test_the_start_says_which_configuration_it_has(served: Served) -> None:
    with capture_logs() as logs:
        run_server(Request(host="0.0.0.0", port=81))
        run_server(Request(upstream="http://llm.example/v1"))
    assert [line["configuration"] for line in logs if line["event"] == "starting"] == ["built-in default", "--upstream"]
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "no tenant has a key, so requests from other machines to 0.0.0.0 are answered with 401"
    ]


@pytest.mark.parametrize(("upstream", "preset"), [("llm.example", None), ("http://x", "chatt")])
def test_an_address_or_preset_that_cannot_be_used(served: Served, upstream: str, preset: str | None) -> None:
    with pytest.raises(ConfigError):
        run_server(Request(upstream=upstream, preset=preset))
    assert served == []


def test_several_workers_need_postgresql(served: Served) -> None:
    with pytest.raises(ConfigError, match="--workers: more than one worker needs PostgreSQL"):
        run_server(Request(workers=2))
    assert served == []


@pytest.mark.parametrize("request_", [Request(preset="chat"), Request(config=Path("a"), upstream="http://x")])
def test_options_that_exclude_each_other(served: Served, request_: Request) -> None:
    with pytest.raises(typer.BadParameter):
        run_server(request_)
    assert served == []


def test_modules_beside_the_configuration_are_found(
    served: Served, config: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_for_serve.py").write_text("class Own:\n    async def trim(self, request): ...\n")
    monkeypatch.chdir("/")
    assert run_server(Request(config=config("policies: {default: {strategy: 'beside_for_serve:Own'}}"))) == 7


def test_a_trimmer_that_is_not_there_is_refused(served: Served, config: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match="there is no module not_there_at_all"):
        run_server(Request(config=config("policies: {default: {strategy: 'not_there_at_all:Own'}}")))
    assert served == []
