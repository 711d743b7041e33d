"""docs/operations.md names the metrics, log fields and paths that a running proxy has."""

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.docs.page import Page
from tests.docs.running import PATIENCE_S, ROOT, Transom, transom
from transom.proxy.metrics import HistoryMatch, Metrics, Mode, SessionSource, Stage, SummaryOutcome
from transom.proxy.metrics_reference import fill, metric_table

PAGE = Page(ROOT / "docs" / "operations.md")
SERIES = re.compile(r"(transom_[a-z_]+)(?:\{([^}]*)\})?")
WORD = re.compile(r"\w+")
ASKED = {"model": "demo", "messages": [{"role": "user", "content": "Remember the heron."}]}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transom]:
    with transom(tmp_path_factory.mktemp("operations")) as running:
        call(running, "/v1/chat/completions", ASKED)
        yield running


def call(proxy: Transom, path: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://{proxy.address}{path}", data, {"content-type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def section(title: str) -> str:
    return PAGE.text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_committed_table_is_current() -> None:
    assert fill(PAGE.text) == PAGE.text


def test_run_as_a_module_it_renews_the_table(tmp_path: Path) -> None:
    stale = tmp_path / "operations.md"
    stale.write_text(PAGE.text.replace("Requests being served", "stale"), "utf-8")
    subprocess.run([sys.executable, "-m", "transom.proxy.metrics_reference", str(stale)], check=True)
    assert stale.read_text("utf-8") == PAGE.text


def test_every_metric_has_a_row_with_its_labels_and_a_sentence(proxy: Transom) -> None:
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", call(proxy, "/metrics"), re.MULTILINE))
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in metric_table().splitlines()[2:]]
    assert {name.strip("`"): kind for name, kind, _, _ in rows} == kinds
    assert {name.strip("`"): set(re.findall(r"`(\w+)`", labels)) for name, _, labels, _ in rows} == {
        name: set(labels) for name, labels in Metrics().labels.items()
    }
    assert all(re.fullmatch(r"[A-Z].{20,}\.", meaning) for *_, meaning in rows)


def test_questions_ask_for_series_and_labels_there_are(proxy: Transom) -> None:
    exposed, labels = call(proxy, "/metrics"), Metrics().labels
    (queries,) = PAGE.blocks("promql")
    asked = [line for line in queries.splitlines() if not line.startswith("#")]
    assert len(asked) == 5
    for query in asked:
        for series, selector in SERIES.findall(query):
            name = series.removesuffix("_bucket")
            assert f"# TYPE {name} {'histogram' if name != series else 'counter'}\n" in exposed
            assert set(re.findall(r"(\w+)=", selector)) <= set(labels[name])
        names = {series.removesuffix("_bucket") for series, _ in SERIES.findall(query)}
        for grouping in re.findall(r"by \(([^)]*)\)", query):
            assert set(grouping.split(", ")) <= {"le"}.union(*(labels[name] for name in names))


def test_every_field_of_a_requests_line_is_described(proxy: Transom) -> None:
    described = {
        name for row in re.findall(r"^\| (`.*?) \|", section("Log"), re.MULTILINE) for name in WORD.findall(row)
    }
    assert chat_line(proxy).keys() - {"event"} == described - {"tool_limit", "code", "error"}


def chat_line(proxy: Transom) -> dict[str, Any]:
    """Return the line of the fixture's request; lines are written a moment after their requests."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for line in map(json.loads, (proxy.folder / "transom.log").read_text().splitlines()):
            if line["event"] == "request" and line["path"] == "/v1/chat/completions":
                return dict(line)
        time.sleep(0.05)
    raise AssertionError("the request was not logged")


def test_values_of_labels_are_those_that_are_counted() -> None:
    rows = dict(re.findall(r"^\| (`\w+` of [^|]*|`mode`|`source`) \| ([^|]*) \|$", PAGE.text, re.MULTILINE))
    known = {
        "`stage` of the overhead": get_args(Stage),
        "`outcome` of summaries": get_args(SummaryOutcome),
        "`kind` of history matches": get_args(HistoryMatch),
        "`mode`": get_args(Mode),
        "`source`": get_args(SessionSource),
    }
    assert rows.keys() == known.keys()
    for label, values in rows.items():
        assert set(WORD.findall(values)) == set(known[label])


def test_health_is_what_it_says(proxy: Transom) -> None:
    assert json.loads(call(proxy, "/healthz")) == json.loads(call(proxy, "/readyz")) == {"status": "ok"}


def test_a_backup_is_whole_while_the_proxy_runs(proxy: Transom) -> None:
    (statement,) = re.findall(r'sqlite3 transom\.db "(.*)"', PAGE.text)
    target = proxy.folder / "backup.db"
    with closing(sqlite3.connect(proxy.folder / "transom.db")) as connection:
        connection.execute(statement.replace("backup.db", str(target)))
    with closing(sqlite3.connect(target)) as copy:
        assert any(b"heron" in payload for (payload,) in copy.execute("SELECT payload FROM messages"))


def test_the_database_is_for_its_owner_only(proxy: Transom) -> None:
    assert (proxy.folder / "transom.db").stat().st_mode & 0o777 == 0o600
