"""The bench's arithmetic, and one short run of it against real servers."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench.client import Answer
from bench.measure import median, memory, times
from bench.report import MEMORY, TIMES, Results, markdown, show
from bench.scenarios.catalogue import SCENARIOS
from bench.stalls import places
from bench.texts import Conversation, body, long_history, short, text

THREADS = [("0x1", "threading.py"), ("0x2", "a/raw.py")]  # the loop's is written last
ROOT = Path(__file__).parents[2]


def answers(*milliseconds: float) -> list[Answer]:
    return [Answer(ms, None, "") for ms in milliseconds]


def test_times_are_the_median_the_99th_of_a_hundred_and_the_worst() -> None:
    told = times(answers(*range(1, 101)))
    assert told == {"requests": 100, "ms": 50.5, "p99_ms": 100, "worst_ms": 100}
    assert times([]) == {"requests": 0}
    assert times([Answer(9, 2, ""), Answer(9, 4, "")])["first_ms"] == 3


def test_a_slope_leaves_the_first_half_out_and_needs_a_thousand_requests() -> None:
    warming = [(0, 10.0), (1_500, 90.0)]
    steady = [(count, 100 + count / 1024) for count in range(2_000, 4_001, 500)]
    told = memory([*warming, *steady])
    assert told["slope_kib"] == pytest.approx(1000)
    assert (told["rss_start_mib"], told["rss_end_mib"]) == (10, pytest.approx(100 + 4_000 / 1024))
    assert "slope_kib" not in memory([(0, 1.0), (999, 2.0)])


def test_of_repeated_runs_each_figure_has_its_own_median() -> None:
    runs = [{"cold": {"ms": 1.0, "rps": 9.0}}, {"cold": {"ms": 3.0, "rps": 1.0}}, {"cold": {"ms": 2.0}}]
    assert median(runs) == {"cold": {"ms": 2, "rps": 5}}


def test_results_are_set_against_the_relay_and_the_direct_call() -> None:
    results = Results(titles={"S1": "S1: calls"})
    results.add("S1", "direct", {"a": {"ms": 1, "rps": 9_000}})
    results.add("S1", "relay", {"a": {"ms": 2, "rps": 4_000, "cpu_us": 200}})
    results.add("S1", "transom", {"a": {"ms": 4, "rps": 2_000, "cpu_us": 300, "rss_start_mib": 50}})
    told = results.scenarios["S1"]["a"]
    assert told["relay"]["added_ms"] == 1
    assert (told["transom"]["added_ms"], told["transom"]["rps_ratio"], told["transom"]["cpu_ratio"]) == (3, 0.5, 1.5)
    assert "added_ms" not in told["direct"]
    page = markdown(results)
    assert "| a | transom | 2,000 | 0.50 | 300 | 1.50 | 4.00 | 3.00 |" in page
    assert "| a | transom | 50 |" in page


def test_the_page_explains_every_scenario_and_every_figure() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    named = {cell.strip(" `") for line in page.splitlines() for cell in line.split("|")[1:2]}
    explained = {part for name in named for part in name.split(", ")}
    assert set(SCENARIOS) <= explained
    assert {column.heading for column in (*TIMES, *MEMORY)} - explained == {"requests", "summaries", "failures"}


def test_stalls_are_counted_by_where_the_loop_stood() -> None:
    def dump(line: int) -> str:
        threads = [
            f'Thread {place} (most recent call first):\n  File "{file}", line {line} in f\n' for place, file in THREADS
        ]
        return "Timeout (0:00:00.02)!\n" + "\n".join(threads)

    assert places(dump(7) + dump(8) + dump(7)) == [(2, "raw.py:7 f"), (1, "raw.py:8 f")]
    assert "in no callback" in places(dump(7).replace("a/raw.py", "asyncio/runners.py"))[0][1]
    assert places("") == []


@pytest.mark.parametrize(("load", "warned"), [(0.1, False), (2.0, True)])
def test_a_run_on_a_busy_machine_says_so(load: float, warned: bool) -> None:
    console = Console(file=StringIO(), width=200)
    show(Results(load_before=load), console)
    assert isinstance(console.file, StringIO)
    assert ("do not trust" in console.file.getvalue()) is warned


def test_no_two_requests_are_alike_and_all_end_with_the_user() -> None:
    assert short(1) != short(2)
    assert text(50, 3) == text(50, 3) != text(50, 4)
    messages = json.loads(body(long_history(1_000, 1)))["messages"]
    assert (len(messages), messages[0]["role"], messages[-1]["role"]) == (1_000, "system", "user")


def test_a_conversation_is_resent_with_a_tool_round_every_fifth_turn() -> None:
    talk, roles = Conversation(1), []
    for _ in range(5):
        sent = json.loads(talk.ask())["messages"]
        roles = [message["role"] for message in sent]
        talk.hear("so")
    assert roles == ["system", *["user", "assistant"] * 4, "user", "assistant", "tool"]
    assert sent[-1]["tool_call_id"] == sent[-2]["tool_calls"][0]["id"]


def test_a_run_measures_both_servers_and_writes_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    options = ["--scenario", "S3", "--only", "relay,transom", "--json", str(file)]
    run = subprocess.run(
        [sys.executable, "-m", "bench", *options], cwd=ROOT, capture_output=True, text=True, timeout=250, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    told = json.loads(file.read_text("utf-8"))["scenarios"]["S3"]["all 200 turns"]
    for server in ("relay", "transom"):
        assert told[server]["requests"] == 200
        assert told[server]["failures"] == 0
        assert told[server]["cpu_us"] > 0
    assert told["transom"]["summaries"] > 0
    assert told["transom"]["upstream_kb"] < told["relay"]["upstream_kb"]
