"""The demo as a person runs it: in a process of its own, its output read through a pipe."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from transom.proxy.cli.demo import demo, server

pytestmark = pytest.mark.timeout(240)

COMMAND = [sys.executable, "-m", "transom", "demo"]
TURN = re.compile(r"^ {0,3}\d+  .* ([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+) +(?:–|\d+%) +(?:–|\d+%)$", re.MULTILINE)
SUMMARY = re.compile(r"^ +summary (\d+)  (?:summary \d+ and )?\d+ messages, [\d,]+ → [\d,]+ tokens", re.MULTILINE)
CUT = re.compile(r"^ +cut  (\d+) messages of turns? [^,]+, [\d,]+ tokens: ", re.MULTILINE)
FOLDED_LATE = re.compile(r"^ +│ of these messages, (.*)$", re.MULTILINE)
TO_COPY = re.compile(r"^  \S*transom (?:serve|check)\b")
ABRIDGED = re.compile(r"^ {0,3}\d+  |^ +│ |^Starting ")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
WATCH = """
import os, sys

def watch(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if str(host) not in ("127.0.0.1", "::1", "localhost", "None"):
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{event} {host}\\n")

sys.addaudithook(watch)
"""


@dataclass
class Ran:
    """What a run of the demo left."""

    code: int
    out: str
    err: str
    reached: str
    files: list[str]

    def total(self, what: str) -> int:
        """Return a number of the table of totals."""
        found = re.search(rf"^ +{what} +([\d,]+)", self.out, re.MULTILINE)
        assert found, what
        return int(found[1].replace(",", ""))

    @property
    def turns(self) -> list[tuple[int, int, int, int]]:
        """Return each turn's messages and tokens, from the client and upstream."""
        rows = [tuple(int(cell.replace(",", "")) for cell in found) for found in TURN.findall(self.out)]
        return [(a, b, c, d) for a, b, c, d in rows]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment that notes who is talked to, and that would lead a careless client astray."""
    (folder / "sitecustomize.py").write_text(WATCH)
    (folder / "folders").mkdir()
    astray = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://203.0.113.1:9")
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        "WATCHED": str(folder / "reached"),
        "TMPDIR": str(folder / "folders"),
        "TRANSOM__STORAGE__URL": "postgresql+psycopg://203.0.113.1/none",
        "OPENAI_BASE_URL": "http://203.0.113.1:9/v1",
    }
    kept = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    return {**kept, **astray, **own}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the demo once for all that is looked at."""
    folder = tmp_path_factory.mktemp("demo")
    env = environment(folder)
    done = subprocess.run(COMMAND, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    reached = folder / "reached"
    return Ran(
        done.returncode,
        done.stdout.decode(),
        done.stderr.decode(),
        reached.read_text() if reached.exists() else "",
        [path.name for path in (folder / "folders").iterdir()],
    )


def test_all_came_out_well(ran: Ran) -> None:
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("  ✓ ") == 8
    assert "✗" not in ran.out


def test_nothing_is_left_and_nobody_else_was_reached(ran: Ran) -> None:
    assert ran.files == []
    assert ran.reached == ""


def test_a_long_conversation_with_tools_is_shown_turn_by_turn(ran: Ran) -> None:
    turns = ran.turns
    assert len(turns) >= 30
    assert turns == sorted(turns, key=lambda turn: turn[:2])
    assert all(sent <= before and sent_tokens <= tokens for before, tokens, sent, sent_tokens in turns)
    for kind in ("  1  ", "parallel", "chained", " then "):
        assert kind in ran.out
    assert "\n   2  ~ My budget" in ran.out


def test_what_the_proxy_did_is_told(ran: Ran) -> None:
    summaries = SUMMARY.findall(ran.out)
    assert len(summaries) >= 3
    assert ran.out.count("│ My booking code is QX7-4481") == 2  # the first summary's beginning, and the proof
    assert "│ kept word for word: “From now on, never book a red-eye flight" in ran.out
    assert "\n      cut  " in ran.out
    assert "\n      tool-call cap  6 calls made" in ran.out


def test_the_early_fact_is_known_from_a_summary_alone(ran: Ran) -> None:
    assert "Your booking code is QX7-4481." in ran.out
    assert "✓ It was said in message 1 of the conversation." in ran.out


def test_totals_agree_with_each_other(ran: Ran) -> None:
    received, sent = ran.total("prompt tokens the client sent"), ran.total("prompt tokens that went upstream")
    written = ran.total(r"tokens for writing \d+ summaries")
    assert received - sent - written == ran.total("tokens saved after all") > 0
    assert 0 < ran.total("repeating the request before") < sent
    assert f"tokens for writing {len(SUMMARY.findall(ran.out))} summaries" in ran.out
    assert ran.total("requests") > len(ran.turns)
    assert sum(turn[1] for turn in ran.turns) < received
    assert ran.total("messages stored") == ran.turns[-1][0]  # the answer to the last takes the system message's place
    assert ran.total("turns stopped by the tool-call cap") == ran.out.count("\n      tool-call cap  ")


def test_each_cut_message_is_told_once_and_found_again_in_a_summary(ran: Ran) -> None:
    cut = [int(number) for number in CUT.findall(ran.out)]
    told = " ".join(FOLDED_LATE.findall(ran.out))
    late = [int(number) for number in re.findall(r"(\d+) were cut at turn", told)]
    assert len(cut) >= 2
    assert sum(cut) == sum(late) == ran.total("messages cut without a summary")
    assert "  later summaries stand for all\n" in ran.out
    assert f"✓ The {sum(cut)} messages listed above as cut are the " in ran.out


def test_it_reads_well_in_a_file(ran: Ran) -> None:
    lines = ran.out.splitlines()
    assert "\x1b" not in ran.out
    assert [line for line in lines if line != line.rstrip()] == []
    shown = lines[: lines.index("Point your own client at it")]
    assert [line for line in shown if len(line) > 100] == []


def test_nothing_is_wider_than_a_narrow_terminal_or_cut_off_at_its_edge(tmp_path: Path) -> None:
    lines = _on_a_terminal(tmp_path, columns=80).splitlines()
    assert [line for line in lines if len(line) > 80 and not TO_COPY.match(line)] == []
    assert {f"  {line}" for line in server.POLICY.splitlines()} <= {line.rstrip() for line in lines}
    assert [line for line in lines if "…" in line and not ABRIDGED.match(line)] == []
    assert len(TURN.findall("\n".join(lines))) >= 30


def _on_a_terminal(folder: Path, columns: int) -> str:
    """Run the demo on a terminal of its own; return what it wrote, less the colours."""
    env = {name: value for name, value in environment(folder).items() if name not in ("COLUMNS", "LINES")}
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    running = subprocess.Popen(
        COMMAND, cwd=folder, env={**env, "TERM": "xterm-256color"}, stdin=subprocess.DEVNULL, stdout=theirs
    )
    os.close(theirs)
    written = b""
    with suppress(OSError):  # the terminal's other end is closed
        while piece := os.read(ours, 65536):
            written += piece
    os.close(ours)
    assert running.wait(60) == 0
    return COLOUR.sub("", written.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_it_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    env = environment(tmp_path)
    # Whoever runs the tests may have had a signal ignored, and a child inherits that.
    before = signal.signal(how, signal.SIG_DFL if how != signal.SIGINT else signal.default_int_handler)
    running = subprocess.Popen(COMMAND, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    signal.signal(how, before)
    assert running.stdout is not None
    address = b""
    while b"http://" not in address:
        address = running.stdout.readline()
    folder = next((tmp_path / "folders").iterdir())
    running.send_signal(how)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said.decode()) == (
        1,
        "\nThe demo was stopped; its proxy and its folder are gone.\n",
    )
    assert not folder.exists()
    found = re.search(rb":(\d+)/v1", address)
    assert found
    assert not _listens(int(found[1]))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_proxy_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(server, "CONFIG", "server: {prt: 1}\n")
    assert demo() == 1
    said = capsys.readouterr().err
    assert said == (
        "The demo cannot go on: its proxy ended at once, with code 1. The last line of its log: "
        "config.yaml:1: server.prt: unknown key; did you mean port?\n"
    )


def test_a_proxy_that_hangs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(server, "START_S", 0.0)
    assert demo() == 1
    assert capsys.readouterr().err.startswith("The demo cannot go on: its proxy was not ready within 0 seconds. ")
