import ast
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from transom.proxy.metrics import Metrics

TABLE = {
    "transom_requests": ("counter", {"tenant", "model", "endpoint", "status"}),
    "transom_request_duration_seconds": ("histogram", {"tenant", "model", "stream"}),
    "transom_overhead_seconds": ("histogram", {"stage"}),
    "transom_upstream_duration_seconds": ("histogram", {"model", "provider"}),
    "transom_time_to_first_token_seconds": ("histogram", {"model", "provider"}),
    "transom_requests_in_flight": ("gauge", set()),
    "transom_prompt_tokens": ("counter", {"tenant", "model", "stage"}),
    "transom_upstream_tokens": ("counter", {"tenant", "model", "kind"}),
    "transom_prefix_stable_tokens": ("counter", {"tenant", "model"}),
    "transom_window_passes": ("counter", {"tenant", "policy", "outcome", "mode"}),
    "transom_window_over_budget": ("counter", {"tenant", "policy"}),
    "transom_context_length_retries": ("counter", {"model"}),
    "transom_upstream_truncation_suspected": ("counter", {"model"}),
    "transom_items_removed": ("counter", {"tenant", "policy", "trimmer"}),
    "transom_summaries": ("counter", {"tenant", "policy", "model", "outcome"}),
    "transom_summary_duration_seconds": ("histogram", {"model"}),
    "transom_summary_tokens": ("counter", {"tenant", "model", "kind"}),
    "transom_session_source": ("counter", {"tenant", "source"}),
    "transom_history_match": ("counter", {"kind"}),
    "transom_tool_limit": ("counter", {"tenant", "policy", "action"}),
    "transom_token_estimate_error_ratio": ("histogram", {"model"}),
    "transom_storage_duration_seconds": ("histogram", {"operation"}),
    "transom_storage_errors": ("counter", {"operation"}),
    "transom_sessions": ("gauge", set()),
    "transom_database_bytes": ("gauge", set()),
    "transom_config_reloads": ("counter", {"outcome"}),
}
"""The contract with dashboards: every metric (counters without `_total`), its type and its labels."""


def filled() -> Metrics:
    """Return metrics in which every method has been called once."""
    metrics = Metrics()
    metrics.in_flight = lambda: 1
    metrics.request("acme", "m", "chat", 200)
    metrics.request_seconds("acme", "m", True, 0.2)
    metrics.overhead("parse", 0.0002)
    metrics.upstream_seconds("m", "direct", 0.3)
    metrics.first_token("m", "direct", 0.1)
    metrics.prompt("acme", "m", received=100, sent=40, stable=30)
    metrics.usage("acme", "m", prompt=41, cached=20, completion=7)
    metrics.estimate("m", 0.97)
    metrics.window_pass("acme", "support", "cut", "on")
    metrics.over_budget("acme", "support")
    metrics.length_retry("m")
    metrics.truncation_suspected("m")
    metrics.items_removed("acme", "support", "truncate", 6)
    metrics.summary("acme", "support", "s", "created")
    metrics.summary_call("acme", "s", seconds=1.5, prompt=300, completion=50)
    metrics.tool_limit("acme", "support", "final_answer")
    metrics.session_source("acme", "header")
    metrics.history_match("extend")
    metrics.storage("load", 0.001)
    metrics.storage_error("write")
    metrics.stored(12, 4096)
    metrics.reload("applied")
    metrics.settle()
    return metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Return what a scrape shows, by name and labels."""
    lines = (line.rsplit(" ", 1) for line in metrics.render().decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def test_names_types_and_labels_are_the_tables() -> None:
    found = {}
    for family in text_string_to_metric_families(filled().render().decode()):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name] = (family.type, labels)
    assert found == TABLE


def test_every_metric_exists_before_it_is_first_used() -> None:
    families = text_string_to_metric_families(Metrics().render().decode())
    assert {family.name for family in families} == set(TABLE)


def test_every_public_method_is_called_here() -> None:
    source = ast.parse(Path(__file__).read_text("utf-8"))
    called = {
        node.func.attr
        for node in ast.walk(source)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert {name for name in vars(Metrics) if not name.startswith("_")} <= called


def test_values_arrive_under_their_labels() -> None:
    found = samples(filled())
    assert found['transom_requests_total{endpoint="chat",model="m",status="200",tenant="acme"}'] == 1
    assert found['transom_prompt_tokens_total{model="m",stage="received",tenant="acme"}'] == 100
    assert found['transom_prompt_tokens_total{model="m",stage="sent",tenant="acme"}'] == 40
    assert found['transom_prefix_stable_tokens_total{model="m",tenant="acme"}'] == 30
    assert found['transom_upstream_tokens_total{kind="cached",model="m",tenant="acme"}'] == 20
    assert found['transom_summary_tokens_total{kind="completion",model="s",tenant="acme"}'] == 50
    assert found['transom_items_removed_total{policy="support",tenant="acme",trimmer="truncate"}'] == 6
    assert found['transom_request_duration_seconds_count{model="m",stream="true",tenant="acme"}'] == 1
    assert found["transom_requests_in_flight"] == 1
    assert (found["transom_sessions"], found["transom_database_bytes"]) == (12, 4096)


def test_counting_again_adds_to_the_same_series() -> None:
    metrics = filled()
    before = len(samples(metrics))
    for _ in range(10):
        metrics.request("acme", "m", "chat", 200)
        metrics.overhead("parse", 0.5)
    assert len(samples(metrics)) == before
    assert samples(metrics)['transom_requests_total{endpoint="chat",model="m",status="200",tenant="acme"}'] == 11


def test_overhead_is_told_apart_from_a_tenth_of_a_millisecond_to_a_second() -> None:
    bounds = re.findall(r'transom_overhead_seconds_bucket{le="([^"]+)"', filled().render().decode())
    assert (bounds[0], bounds[-2], bounds[-1]) == ("0.0001", "1.0", "+Inf")


def test_two_sets_of_metrics_do_not_meet() -> None:
    filled()
    assert "acme" not in Metrics().render().decode()
