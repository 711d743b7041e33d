"""A real proxy of the demo's own: a process on a free port of this machine, with a folder that goes when it ends.

It knows how to start, ask and stop it; what is sent through it is others' matter.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 30.0
STOP_S = 5.0
POLL_S = 0.02
ANSWER_S = 10.0
DATABASE = "demo.db"

RECENT_TURNS = 3
POLICY = f"""\
policies:
  default:
    strategy: context_window      # old turns: a summary; still too much: cut
    max_tokens: 1500              # of a request's messages, however many
    keep_recent_turns: {RECENT_TURNS}          # the newest stay word for word, if they fit
    max_tool_calls_per_turn: 6    # then the model has to answer
"""
CONFIG = f"""\
server: {{host: 127.0.0.1, drain_s: 1}}
storage: {{url: "sqlite+aiosqlite:///{DATABASE}"}}
model_list:
  - {{model_name: demo, litellm_params: {{model: transom/demo}}}}
{POLICY}"""


class ProxyFailed(Exception):
    """The proxy did not start, or did not answer; the text is for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy: where it listens and where its files are."""

    host: str
    port: int
    folder: Path

    @property
    def url(self) -> str:
        """Return what a client takes as its base_url."""
        return f"http://{self.host}:{self.port}/v1"

    def get(self, path: str) -> bytes:
        """Fetch a path, past any proxy that the environment names. Raises ProxyFailed."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ProxyFailed(f"the proxy does not answer GET {path} ({type(error).__name__}).") from None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ProxyFailed(f"the proxy answered GET {path} with status {answer.status}.")
        return body

    def get_json(self, path: str) -> Any:
        """Fetch a path that answers JSON. Raises ProxyFailed."""
        return json.loads(self.get(path))

    def database_bytes(self) -> tuple[int, int]:
        """Return the sizes of the database file and of what stands beside it, its write-ahead log."""
        main = (self.folder / DATABASE).stat().st_size
        return main, sum(path.stat().st_size for path in self.folder.glob(f"{DATABASE}-*"))


@contextmanager
def starting_proxy() -> Iterator["Starting"]:
    """Start a proxy, and stop it and remove its folder however the block ends.

    A ProxyFailed of the block passes on with the last words of the proxy's log.
    """
    with tempfile.TemporaryDirectory(prefix="transom-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(CONFIG, "utf-8")
        command = [sys.executable, "-m", "transom", "serve", "--config", "config.yaml", "--port", "0"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the demo alone, which then stops the proxy in order
            )
        starting = Starting(process, folder)
        try:
            yield starting
        except ProxyFailed as failure:
            raise ProxyFailed(f"{failure} {starting.last_words()}") from None
        finally:
            _stop(process)


def _environment() -> dict[str, str]:
    """Return the environment without what would change the proxy's configuration or its metrics."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith("TRANSOM__") and name.upper() != "PROMETHEUS_MULTIPROC_DIR"
    }


@dataclass(frozen=True, slots=True)
class Starting:
    """A proxy's process, of which nothing is known yet but its log."""

    process: subprocess.Popen[bytes]
    folder: Path

    def ready(self) -> Proxy:
        """Wait until the log tells the address. Raises ProxyFailed."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            code = self.process.poll()
            for event in self._events():
                if event.get("event") == "listening":
                    host, _, port = str(event["url"]).removeprefix("http://").rpartition(":")
                    return Proxy(host, int(port), self.folder)
            if code is not None:
                raise ProxyFailed(f"its proxy ended at once, with code {code}.")
            time.sleep(POLL_S)
        raise ProxyFailed(f"its proxy was not ready within {START_S:.0f} seconds.")

    def _lines(self) -> list[str]:
        return (self.folder / "log").read_text("utf-8", "replace").splitlines()

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self._lines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event

    def last_words(self) -> str:
        """Return the last line of the log that is no mere report, else the last one, for a person."""
        told = [line.strip() for line in self._lines() if line.strip()]
        complaints = [line for line in told if '"level":"info"' not in line]
        return f"The last line of its log: {(complaints or told)[-1]}" if told else "It logged nothing."


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process in order, or at once where it does not; further Ctrl-C do not get in between."""
    ignored = {}
    with suppress(ValueError):  # not the main thread
        ignored = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    finally:
        for one, handler in ignored.items():
            signal.signal(one, handler)
