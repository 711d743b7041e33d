import os
import re
import resource
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from transom.proxy import server
from transom.proxy.config.load import from_mapping
from transom.proxy.config.watch import LiveSettings
from transom.proxy.process import STARTUP_FAILED, Assemble, Listen

Serve = Callable[..., list[tuple[Listen, int]]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Listen, int]]:
    """Record what would be served, and with how many workers, and close the sockets again."""
    calls: list[tuple[Listen, int]] = []

    def run(assemble: Assemble, listen: Listen, workers: int = 1) -> int:
        calls.append((listen, workers))
        listen.close()
        return 7

    monkeypatch.setattr(server, "run", run)
    monkeypatch.setattr(server, "run_workers", run)
    return calls


def live(tmp_path: Path, **sections: Any) -> LiveSettings:
    storage = {"url": f"sqlite+aiosqlite:///{tmp_path}/transom.db"}
    return LiveSettings(lambda: from_mapping({"storage": storage, **sections}))


def test_the_bounds_come_from_the_configuration(served: list[tuple[Listen, int]], tmp_path: Path) -> None:
    settings = live(tmp_path, limits={"header_s": 3, "body_s": 4, "idle_s": 5}, server={"drain_s": 6, "admin_port": 0})
    assert server.serve(settings, host="127.0.0.1", port=0) == 7
    ((listen, workers),) = served
    assert (listen.bounds.header_s, listen.bounds.body_s, listen.bounds.idle_s, listen.drain_s) == (3, 4, 5, 6)
    assert (len(listen.sockets), workers) == (2, 1)


def test_without_an_admin_port_there_is_one_socket(served: list[tuple[Listen, int]], tmp_path: Path) -> None:
    server.serve(live(tmp_path), host="::1", port=0, workers=2)
    ((listen, workers),) = served
    assert (len(listen.sockets), workers, listen.sockets[0].family) == (1, 2, socket.AF_INET6)


def test_connections_leave_files_for_upstreams(served: list[tuple[Listen, int]], tmp_path: Path) -> None:
    server.serve(live(tmp_path), host="127.0.0.1", port=0)
    assert 16 <= served[0][0].bounds.connections < resource.getrlimit(resource.RLIMIT_NOFILE)[0] / 2


def test_a_port_in_use_is_one_line_and_code_1(served: list[tuple[Listen, int]], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, capture_logs() as lines:
        port = taken.getsockname()[1]
        assert server.serve(live(tmp_path), host="127.0.0.1", port=port) == STARTUP_FAILED
    assert [line["event"] for line in lines] == ["cannot listen"]
    assert lines[0]["reason"] == "Address already in use"
    assert served == []


def started(*sections: str, folder: Path) -> subprocess.Popen[str]:
    """Start `transom serve` on a free port, with these further sections in its configuration."""
    (folder / "config.yaml").write_text("\n".join(["server: {port: 0, drain_s: 0}", *sections]))
    program = [sys.executable, "-c", "from transom.proxy.cli import main; main()", "serve"]
    return subprocess.Popen(program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_listening_is_told_when_requests_are_answered(tmp_path: Path) -> None:
    process = started(f"storage: {{url: 'sqlite+aiosqlite:///{tmp_path}/transom.db'}}", folder=tmp_path)
    assert process.stdout is not None
    url = None
    try:
        for line in process.stdout:
            if found := re.search(r"http://127.0.0.1:\d+", line):
                url = found[0]
                assert "listening" in line
                break
        assert url is not None
        assert (tmp_path / "transom.db").exists()
        with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
            assert answer.status == 200
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_database_that_cannot_be_opened_is_named_and_nothing_listens(tmp_path: Path) -> None:
    process = started(f"storage: {{url: 'sqlite+aiosqlite:///{tmp_path}/no/transom.db'}}", folder=tmp_path)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == STARTUP_FAILED
    assert "cannot start" in said
    assert f"{tmp_path}/no" in said
    assert "listening" not in said


def test_of_several_processes_one_announces() -> None:
    announcement = server.Announcement("http://127.0.0.1:1", 2)
    child = os.fork()
    if not child:
        with capture_logs() as lines:
            announcement.make()
        os._exit(len(lines))
    _, status = os.waitpid(child, 0)
    with capture_logs() as lines:
        announcement.make()
        announcement.make()
    announcement.close()
    assert (os.waitstatus_to_exitcode(status), lines) == (1, [])


@pytest.mark.parametrize(
    ("before", "after"),
    [((256, 4096), 4096), ((4096, 4096), 4096), ((256, resource.RLIM_INFINITY), 1_048_576)],
)
def test_the_limit_of_files_is_raised(monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: int) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert server.descriptor_limit() == after
    assert raised == ([] if before[0] == after else [(after, before[1])])
