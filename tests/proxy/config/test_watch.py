"""Reloading: valid files are swapped in, invalid ones change nothing; links, includes and SIGHUP are noticed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from transom.proxy.config import watch as watch_module
from transom.proxy.config.load import ConfigError, for_upstream, load
from transom.proxy.config.watch import LiveSettings, watch


@pytest.fixture(autouse=True)
def _compared_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "POLL_S", 0.02)


def live_settings(path: Path) -> LiveSettings:
    return LiveSettings(partial(load, path), path=path)


def write(path: Path, port: int, more: str = "") -> None:
    path.write_text(f"server: {{port: {port}}}\n{more}")


def port(live: LiveSettings) -> int:
    return live.current.config.server.port


@asynccontextmanager
async def watching(live: LiveSettings) -> AsyncIterator[list[str]]:
    """Watch until the block ends; yields the outcomes as they come."""
    outcomes: list[str] = []
    live.counted = outcomes.append
    stop = asyncio.Event()
    task = asyncio.create_task(watch(live, stop))
    await asyncio.sleep(0)  # until SIGHUP is heard
    try:
        yield outcomes
    finally:
        stop.set()
        await task


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not met():
            await asyncio.sleep(0.02)


def test_a_valid_file_is_swapped_in(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    before = live.current
    outcomes: list[str] = []
    live.counted = outcomes.append
    write(path, 2, "tenants: {a: {keys: [k]}}\n")
    assert live.reload()
    assert port(live) == 2
    assert live.current.tenant_for_key("k") is not None
    assert (before.config.server.port, before.tenant_for_key("k")) == (1, None)
    assert outcomes == ["applied"]


def test_an_invalid_file_is_told_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    before = live.current
    outcomes: list[str] = []
    live.counted = outcomes.append
    path.write_text("server:\n  prt: 2\n")
    with capture_logs() as logs:
        assert not live.reload()
    assert live.current is before
    assert outcomes == ["rejected"]
    assert [(line["log_level"], line["faults"]) for line in logs] == [
        ("error", [f"{path}:2: server.prt: unknown key; did you mean port?"])
    ]


def test_what_takes_a_restart_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    write(path, 2, "storage: {timeout_s: 5, synchronous: full}\nlimits: {idle_s: 5, total_s: 9}\n")
    with capture_logs() as logs:
        live.reload()
    assert logs[0]["takes_restart"] == ["server.port", "storage.synchronous", "limits.idle_s"]


def test_the_first_reading_must_succeed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        live_settings(tmp_path / "nowhere.yaml")


def test_only_a_change_reloads(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    assert not live.reload_if_changed()
    path.touch()
    assert not live.reload_if_changed()
    write(path, 2)
    assert live.reload_if_changed()
    assert not live.reload_if_changed()
    path.write_text("broken: [")
    assert live.reload_if_changed()
    assert not live.reload_if_changed()
    path.unlink()
    assert live.reload_if_changed()
    assert not live.reload_if_changed()
    assert port(live) == 2


def test_a_change_while_the_file_is_read_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    changes = [lambda: write(path, 2)]

    def read_slowly() -> object:
        config = load(path)
        if changes:
            changes.pop()()
        return config

    live = LiveSettings(read_slowly, path=path)  # type: ignore[arg-type]
    assert port(live) == 1
    assert live.reload_if_changed()
    assert port(live) == 2


def test_included_files_count(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    (tmp_path / "d").mkdir()
    write(path, 1, "include: [d/*.yaml]\n")
    live = live_settings(path)
    (tmp_path / "d" / "t.yaml").write_text("tenants: {a: {keys: [k]}}")
    assert live.reload_if_changed()
    assert live.current.tenant_for_key("k") is not None


def test_without_a_file_there_is_nothing_to_watch() -> None:
    live = LiveSettings(partial(for_upstream, "http://localhost/v1"))
    assert not live.reload_if_changed()
    assert live.reload()


async def test_a_saved_file_takes_effect(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    async with watching(live) as outcomes:
        write(path, 2)
        await until(lambda: port(live) == 2)
        path.write_text("nonsense: [")
        await until(lambda: "rejected" in outcomes)
        assert port(live) == 2
        # As editors save: a new file is moved over the old one.
        write(tmp_path / "new.tmp", 3)
        (tmp_path / "new.tmp").replace(path)
        await until(lambda: port(live) == 3)


async def test_a_configmap_swaps_its_link(tmp_path: Path) -> None:
    for version in (1, 2):
        (tmp_path / f"..v{version}").mkdir()
        write(tmp_path / f"..v{version}" / "config.yaml", version)
    (tmp_path / "..data").symlink_to("..v1")
    path = tmp_path / "config.yaml"
    path.symlink_to("..data/config.yaml")
    live = live_settings(path)
    assert port(live) == 1
    async with watching(live):
        (tmp_path / "..data_tmp").symlink_to("..v2")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await until(lambda: port(live) == 2)


async def test_a_folder_that_is_newly_included_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    (tmp_path / "d").mkdir()
    write(path, 1)
    live = live_settings(path)
    async with watching(live):
        write(path, 2, "include: [d/*.yaml]\n")
        await until(lambda: port(live) == 2)
        (tmp_path / "d" / "t.yaml").write_text("tenants: {a: {keys: [k]}}")
        await until(lambda: live.current.tenant_for_key("k") is not None)


async def test_sighup_reloads(tmp_path: Path) -> None:
    live = LiveSettings(partial(for_upstream, "http://localhost/v1"))
    before = live.current
    async with watching(live) as outcomes:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: outcomes == ["applied"])
        assert live.current is not before


async def test_a_cancelled_watch_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    task = asyncio.create_task(watch(live_settings(path), asyncio.Event()))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


NO_PATTERN = pytest.param("include: ['**x']", marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="it is one"))


@pytest.mark.parametrize("broken", [NO_PATTERN, 'include: ["a\\0b"]', "limits: {in_flight: !!int many}"])
async def test_no_file_ends_the_watch(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "config.yaml"
    write(path, 1)
    live = live_settings(path)
    async with watching(live) as outcomes:
        write(path, 2, broken + "\n")
        await until(lambda: outcomes == ["rejected"])
        write(path, 3)
        await until(lambda: outcomes == ["rejected", "applied"])
    assert port(live) == 3
