import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from transom.proxy.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = re.compile(r"\btransom_[a-z_]+\b")
SELECTED = re.compile(r"(transom_[a-z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\)")


def series() -> dict[str, set[str]]:
    """Return every series a scrape can show, without what only `_bucket` has, and its labels."""
    found = {}
    registry = Metrics().registry
    for collector in set(registry._collector_to_names):
        assert isinstance(collector, Counter | Gauge | Histogram)
        (family,) = collector.describe()
        ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}[family.type]
        found.update({family.name + end: set(collector._labelnames) for end in ends})
    return found


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    return loaded


def expressions() -> Iterator[str]:
    """Yield every PromQL expression of the dashboard and of the alert rules."""
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_only_metrics_that_exist_are_asked_for() -> None:
    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert asked <= series().keys()


def test_only_labels_that_exist_are_asked_for() -> None:
    labels = series()
    for expression in expressions():
        for name, selector in SELECTED.findall(expression):
            assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= labels[name], expression
        known = set.union(*(labels[name] for name in NAME.findall(expression)))
        for grouping in GROUPED.findall(expression):
            assert {label.strip() for label in grouping.split(",")} - {"le"} <= known, expression


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", []))
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series()}
    assert {base for base in bases if base not in shown} == set()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_and_the_metrics() -> None:
    subprocess.run(["promtool", "check", "rules", DEPLOY / "alerts.yaml"], check=True, capture_output=True)
    subprocess.run(["promtool", "check", "metrics"], input=Metrics().render(), check=True, capture_output=True)
