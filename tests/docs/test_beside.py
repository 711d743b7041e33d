"""The files of docs/beside-other-proxies.md do what the page says: nginx and Envoy themselves, in front of a proxy.

They are run where they are installed; `.ci/run` brings both.
"""

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.docs.page import ADDRESS, Page
from tests.docs.running import PATIENCE_S, ROOT, free_port
from tests.proxy.e2e.fake_upstream import DONE, FakeUpstream, Gate, Part, spoken, stream
from tests.proxy.e2e.served import CHAT, Got, Json, Proxy, config, key, request, requesting, serving, user
from transom.proxy.config.load import from_text
from transom.proxy.config.settings import compile_settings

PAGE = Page(ROOT / "docs" / "beside-other-proxies.md")
LISTEN = "8080"  # of the files of the page
POLICIES = {"plain": {"preset": "chat"}}


def nginx(folder: Path, page: str) -> list[str]:
    """Write the page's servers with what any nginx needs around them, and return the command."""
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in names)
    around = f"daemon off;\npid {folder}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{page}\n}}\n"
    if os.getuid() == 0:
        around = "user root;\n" + around
    (folder / "nginx.conf").write_text(around)
    return ["nginx", "-e", f"{folder}/nginx.log", "-c", f"{folder}/nginx.conf"]


def envoy(folder: Path, page: str) -> list[str]:
    """Write the page's file, and return the command."""
    (folder / "envoy.yaml").write_text(page)
    return [
        "envoy",
        "-c",
        f"{folder}/envoy.yaml",
        "--use-dynamic-base-id",
        "--concurrency",
        "1",
        "--log-level",
        "error",
    ]


Kind = tuple[Callable[[Path, str], list[str]], str]
KINDS: dict[str, Kind] = {"nginx": (nginx, "nginx"), "envoy": (envoy, "yaml")}


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    upstream = FakeUpstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def proxy(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Run a proxy with keys, and without one for this machine."""
    database = f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('proxy')}/transom.db"
    mapping = config(upstream.url, POLICIES, database=database)
    mapping["tenants"]["default"] = {"policy": "plain"}
    with serving(mapping) as proxy:
        yield proxy


@pytest.fixture(scope="module", params=KINDS)
def front(request: pytest.FixtureRequest, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run the other proxy in front, with the page's file; return its port."""
    program, language = KINDS[request.param]
    if shutil.which(request.param) is None:
        assert os.environ.get("CI") != "true" or "TRANSOM_TEST_CLIENTS" not in os.environ, f"{request.param} is missing"
        pytest.skip(f"{request.param} is not installed")
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    page = PAGE.blocks(language, f"127.0.0.1:{proxy.port}")[0]
    page = page.replace(f"port_value: {ADDRESS.split(':')[1]}", f"port_value: {proxy.port}").replace(LISTEN, str(port))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(program(folder, page), cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        until_served(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError, HTTPException):
            if request(port, "/v1/models", headers=key("acme")).status == 200:
                return
        time.sleep(0.1)
    raise AssertionError("it does not serve")


def ask(port: int, body: Json, **headers: str) -> Got:
    return request(port, CHAT, body, {name.replace("_", "-"): value for name, value in headers.items()})


def test_a_stream_comes_as_it_is_written(front: int, upstream: FakeUpstream) -> None:
    gate, written = Gate(), threading.Event()

    def parts() -> Iterator[Part]:
        first, *rest = spoken("One", " two.")
        yield first
        yield gate
        written.set()
        yield from (*rest, DONE)

    answer = stream(())
    answer.parts = parts()
    upstream.on("plain", answer)
    body = {"model": "plain", "stream": True, "messages": [user("Count.")]}
    with requesting(front, CHAT, body, key("acme")) as response:
        begun = response.read1()
        assert b"data: " in begun
        assert not written.is_set()
        gate.open()
        assert (begun + response.read()).endswith(DONE)
    upstream.clear()


def test_a_large_body_and_its_session_arrive(front: int, proxy: Proxy) -> None:
    session = f"large-{front}"
    body = {"model": "plain", "messages": [user("word " * 500_000)]}
    got = ask(front, body, **key("acme"), X_Session_Id=session)
    assert (got.status, got.headers["x-session-id"]) == (200, session)
    assert "x-transom-window" in got.headers
    assert len(proxy.rows(proxy.session_id(session)).messages) == 2


def test_who_comes_through_it_needs_a_key(front: int, proxy: Proxy) -> None:
    body = {"model": "plain", "messages": [user("Hello.")]}
    assert ask(proxy.port, body).status == 200
    assert ask(front, body).error[:2] == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/admin/sessions", "/metrics", "/healthz"])
def test_what_is_not_for_clients_is_not_reached(front: int, path: str) -> None:
    got = request(front, path)
    assert got.status == 404
    assert b'"code"' not in got.body


def test_the_configurations_for_a_gateway_behind_are_valid() -> None:
    _, _, behind = PAGE.blocks("yaml")
    settings = compile_settings(from_text(behind, "config.yaml", environment={"LITELLM_KEY": "key"}))
    assert settings.models["my-alias"].max_input_tokens == 128_000
    assert {model.provider for model in settings.models.values()} == {"direct"}


def test_the_page_names_the_defaults_there_are() -> None:
    limits = from_text("{}", "config.yaml").limits
    assert f"`limits.first_byte_s` ({limits.first_byte_s:.0f} s)" in PAGE.text
    assert f"`limits.idle_s` ({limits.idle_s:.0f} s)" in PAGE.text
    assert f"`limits.body_bytes`, {limits.body_bytes // 2**20} MiB" in PAGE.text
    silence = re.findall(r"(?:proxy_read_timeout |stream_idle_timeout: )(\d+)s", PAGE.text)
    idle = re.findall(r"(?:keepalive_timeout |\{idle_timeout: )(\d+)s", PAGE.text)
    assert len(silence) == len(idle) == 2
    assert all(int(seconds) > limits.first_byte_s for seconds in silence)
    assert all(int(seconds) < limits.idle_s for seconds in idle)
