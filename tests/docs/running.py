"""What a reader starts: `transom serve`, and the shell with the lines of a page. And what has been stored then."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE_S = 60
DANGLING = """SELECT count(*) FROM messages m WHERE parent IS NOT NULL AND NOT EXISTS
    (SELECT 1 FROM messages p WHERE p.session = m.session AND p.id = m.parent)"""


@dataclass(frozen=True)
class Transom:
    """A running proxy: its address, and the folder of its database."""

    address: str
    folder: Path

    def admin(self, path: str) -> dict[str, Any]:
        with build_opener(ProxyHandler({})).open(f"http://{self.address}/admin/{path}", timeout=PATIENCE_S) as answer:
            return dict(json.load(answer))


@contextmanager
def transom(folder: Path, **variables: str) -> Iterator[Transom]:
    """Serve what the folder's config.yaml says until the end of the block, on a free port."""
    log = folder / "transom.log"
    program, env = [BIN / "transom", "serve", "--port", "0"], environment() | variables
    with log.open("wb") as output:
        process = subprocess.Popen(program, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield Transom(_address(log, process), folder)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()


def shell(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run lines as a reader's shell would, and end at the first that fails."""
    command, env = ["bash", "-euo", "pipefail", "-c", lines], environment() | variables
    return subprocess.run(
        command, check=False, cwd=folder, env=env, capture_output=True, text=True, timeout=5 * PATIENCE_S
    )


def environment() -> dict[str, str]:
    """Return this process's environment without what would lead a program elsewhere."""
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


def check_database(folder: Path) -> None:
    """Fail if a row has lost the one that it belongs to."""
    with closing(sqlite3.connect(folder / "transom.db")) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute(DANGLING).fetchone() == (0,)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            said = json.loads(line)
            if said["event"] == "listening":
                return str(said["url"]).removeprefix("http://")
        time.sleep(0.05)
    raise AssertionError(f"not listening: {log.read_text()}")
