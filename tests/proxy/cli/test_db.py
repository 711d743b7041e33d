"""`transom db`: what it prints, what it erases, and what it does beside a proxy that runs."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.storage.talk import Talk
from transom.proxy.cli.app import app
from transom.storage.retention import CAUTIOUS_FROM, DAY
from transom.storage.sql_store import SqlStore

CONFIG = (
    "storage: {url: 'sqlite+aiosqlite:///t.db', retention_days: 30}\ntenants: {acme: {}, kept: {retention_days: 900}}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def fill(ages: dict[str, list[float]]) -> None:
    """Store sessions of tenants that were last used so many days ago."""

    async def stored() -> None:
        store = SqlStore.open("sqlite+aiosqlite:///t.db", timeout_s=60.0)
        for tenant, days in ages.items():
            for day in days:
                await store.write(Talk(store, tenant=tenant).batch(["hello", "hi"], at=time.time() - day * DAY))
        await store.close()

    asyncio.run(stored())


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["db", *arguments])
    return result.exit_code, result.output


def sessions() -> int:
    code, said = run("stats", "--json")
    assert code == 0
    return int(json.loads(said)["sessions"])


def test_a_database_is_made_and_measured(folder: Path) -> None:
    code, said = run("upgrade")
    assert (code, said.startswith("the database's schema is number ")) == (0, True)
    assert (folder / "t.db").exists()
    fill({"acme": [0]})
    code, said = run("stats")
    lines = dict(line.split() for line in said.splitlines())
    assert (code, lines["sessions"], lines["messages"]) == (0, "1", "2")
    assert int(lines["bytes"].replace(",", "")) > 0


def test_what_is_too_old_goes_by_each_tenants_own_time(folder: Path) -> None:
    fill({"acme": [31, 29], "kept": [800, 901]})
    assert run("retain") == (0, "2 of 4 sessions erased\n")
    assert sessions() == 2


def test_a_run_that_would_erase_most_waits_for_now(folder: Path) -> None:
    fill({"acme": [31.0] * CAUTIOUS_FROM})
    code, said = run("retain")
    assert (code, said.startswith(f"{CAUTIOUS_FROM} of {CAUTIOUS_FROM} sessions are due")) == (1, True)
    assert sessions() == CAUTIOUS_FROM
    assert run("retain", "--now") == (0, f"{CAUTIOUS_FROM} of {CAUTIOUS_FROM} sessions erased\n")
    assert sessions() == 0


def test_a_file_that_a_proxy_has_open_is_left_alone(folder: Path) -> None:
    held = SqlStore.open("sqlite+aiosqlite:///t.db")
    try:
        code, said = run("stats")
    finally:
        asyncio.run(held.close())
    assert code == 1
    assert "another process has this SQLite database open" in said
    assert "Traceback" not in said
