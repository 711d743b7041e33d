"""Every Prometheus metric in one place: its name, labels, buckets and meaning; does not know when something is counted.

Label values must be bounded by the configuration: a tenant, a policy, a configured model (or `other`); never a
session, a key or a user's text.
"""

import os
from collections.abc import Callable
from typing import Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)

from transom.proxy.tallies import Spread, Tally

Stage = Literal["parse", "history", "window", "summary", "storage", "total"]
Mode = Literal["on", "audit", "control"]
SummaryOutcome = Literal["created", "reused", "failed", "rejected", "timeout", "stale", "breaker_open", "budget"]
SessionSource = Literal["header", "body", "match", "new", "memory"]
HistoryMatch = Literal["extend", "retry", "branch", "new_root"]
ReloadOutcome = Literal["applied", "rejected"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder that the workers of one server share."""

_OVERHEAD_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_UPSTREAM_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_STORAGE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)
_RATIO = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.25, 1.5, 2, 3)

_MEANINGS = {
    "transom_requests_in_flight": "Requests being served at this moment.",
    "transom_sessions": "Sessions (conversations) in the database.",
    "transom_database_bytes": "Size of the database in bytes.",
    "transom_requests_total": "Requests answered, by HTTP status; 499 is a client that left before the answer began.",
    "transom_request_duration_seconds": "Seconds from a request's arrival to the end of its answer, upstream included.",
    "transom_overhead_seconds": (
        "Seconds that this proxy adds to a request, by stage and in total; the wait for a summary is a stage, "
        "and no part of the total."
    ),
    "transom_upstream_duration_seconds": (
        "Seconds from sending to the upstream to the end of its answer, further tries included."
    ),
    "transom_time_to_first_token_seconds": (
        "Seconds from a request's arrival to the first token of its streamed answer."
    ),
    "transom_prompt_tokens_total": (
        "Tokens of prompts by this proxy's own count, as received and as sent after windowing."
    ),
    "transom_upstream_tokens_total": "Tokens as the provider reports them; cached ones are a part of the prompt's.",
    "transom_prefix_stable_tokens_total": (
        "Tokens of sent prompts that repeat the thread's previous prompt from its beginning: what a prompt cache "
        "can reuse."
    ),
    "transom_token_estimate_error_ratio": (
        "This proxy's estimate of a prompt's tokens divided by the provider's figure; 1 is exact."
    ),
    "transom_window_passes_total": (
        "Words of X-Transom-Window: what a policy did to a request, or would have done under audit and control."
    ),
    "transom_window_over_budget_total": "Requests in which what may not be removed is over their limit.",
    "transom_context_length_retries_total": "Tries with a smaller prompt, after the upstream refused one as too long.",
    "transom_upstream_truncation_suspected_total": (
        "Prompts of which the upstream read noticeably less than was sent: it may have cut them silently."
    ),
    "transom_items_removed_total": (
        "Items (messages with content, tool calls, tool results) that a trimmer newly removed from what is sent."
    ),
    "transom_summaries_total": "Summaries wished for, by what became of them; without one, old turns are cut.",
    "transom_summary_duration_seconds": "Seconds of a call to the summary model that was answered.",
    "transom_summary_tokens_total": "Tokens that calls to the summary model used, as the provider reports them.",
    "transom_tool_limit_total": "Requests of turns that have reached a cap on tool calls, by what was done about it.",
    "transom_session_source_total": (
        "Requests by how their session was found: named in a header or body, matched by history, new, or in memory "
        "only."
    ),
    "transom_history_match_total": (
        "Requests by how they go on from what is stored: by extending, retrying, branching, or from a new root."
    ),
    "transom_storage_duration_seconds": "Seconds of a storage operation, waiting for its turn included.",
    "transom_storage_errors_total": "Storage operations that failed, those of the admin API included.",
    "transom_config_reloads_total": "Changed configurations that were applied, or rejected as invalid.",
}

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """All metrics of one process, on a registry of their own. Times are seconds."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labels: dict[str, tuple[str, ...]] = {}  # of every metric, by its name
        self._tallied: list[Tally | Spread] = []
        self.in_flight: Callable[[], int] = lambda: 0  # how many requests are being served right now
        self._in_flight = self._gauge("transom_requests_in_flight", "livesum")
        self._sessions = self._gauge("transom_sessions", "livemostrecent")
        self._database_bytes = self._gauge("transom_database_bytes", "livemostrecent")
        self._define_requests()
        self._define_window()
        self._define_storage()

    def _define_requests(self) -> None:
        self._requests = self._counter("transom_requests_total", "tenant", "model", "endpoint", "status")
        self._request_s = self._histogram("transom_request_duration_seconds", _UPSTREAM_S, "tenant", "model", "stream")
        self._overhead_s = self._histogram("transom_overhead_seconds", _OVERHEAD_S, "stage")
        self._upstream_s = self._histogram("transom_upstream_duration_seconds", _UPSTREAM_S, "model", "provider")
        self._first_token_s = self._histogram("transom_time_to_first_token_seconds", _UPSTREAM_S, "model", "provider")
        self._prompt_tokens = self._counter("transom_prompt_tokens_total", "tenant", "model", "stage")
        self._upstream_tokens = self._counter("transom_upstream_tokens_total", "tenant", "model", "kind")
        self._stable_tokens = self._counter("transom_prefix_stable_tokens_total", "tenant", "model")
        self._estimate_ratio = self._histogram("transom_token_estimate_error_ratio", _RATIO, "model")

    def _define_window(self) -> None:
        self._window_passes = self._counter("transom_window_passes_total", "tenant", "policy", "outcome", "mode")
        self._over_budget = self._counter("transom_window_over_budget_total", "tenant", "policy")
        self._length_retries = self._counter("transom_context_length_retries_total", "model")
        self._truncations = self._counter("transom_upstream_truncation_suspected_total", "model")
        self._items_removed = self._counter("transom_items_removed_total", "tenant", "policy", "trimmer")
        self._summaries = self._counter("transom_summaries_total", "tenant", "policy", "model", "outcome")
        self._summary_s = self._histogram("transom_summary_duration_seconds", _UPSTREAM_S, "model")
        self._summary_tokens = self._counter("transom_summary_tokens_total", "tenant", "model", "kind")
        self._tool_limit = self._counter("transom_tool_limit_total", "tenant", "policy", "action")

    def _define_storage(self) -> None:
        self._session_source = self._counter("transom_session_source_total", "tenant", "source")
        self._history_match = self._counter("transom_history_match_total", "kind")
        self._storage_s = self._histogram("transom_storage_duration_seconds", _STORAGE_S, "operation")
        self._storage_errors = self._counter("transom_storage_errors_total", "operation")
        # Counted in another thread, so not tallied.
        self._reloads = Counter(*self._described("transom_config_reloads_total", "outcome"), registry=self.registry)

    def _counter(self, name: str, *labels: str) -> Tally:
        tally = Tally(Counter(*self._described(name, *labels), registry=self.registry))
        self._tallied.append(tally)
        return tally

    def _histogram(self, name: str, buckets: tuple[float, ...], *labels: str) -> Spread:
        spread = Spread(Histogram(*self._described(name, *labels), registry=self.registry, buckets=buckets), buckets)
        self._tallied.append(spread)
        return spread

    def _gauge(self, name: str, across: Literal["livesum", "livemostrecent"]) -> Gauge:
        return Gauge(*self._described(name), registry=self.registry, multiprocess_mode=across)

    def _described(self, name: str, *labels: str) -> tuple[str, str, tuple[str, ...]]:
        self.labels[name] = labels
        return name, _MEANINGS[name], labels

    def request(self, tenant: str, model: str, endpoint: str, status: int) -> None:
        """Count one answered request."""
        self._requests.add(tenant, model, endpoint, str(status))

    def request_seconds(self, tenant: str, model: str, stream: bool, seconds: float) -> None:
        """Record a whole request's time, from its first byte in to its last byte out."""
        self._request_s.observe(seconds, tenant, model, "true" if stream else "false")

    def overhead(self, stage: Stage, seconds: float) -> None:
        """Record time this proxy added in one stage; upstream's own time is not part of it."""
        self._overhead_s.observe(seconds, stage)

    def upstream_seconds(self, model: str, provider: str, seconds: float) -> None:
        """Record a whole upstream call's time."""
        self._upstream_s.observe(seconds, model, provider)

    def first_token(self, model: str, provider: str, seconds: float) -> None:
        """Record the time from a request's arrival to the first token of its stream."""
        self._first_token_s.observe(seconds, model, provider)

    def prompt(self, tenant: str, model: str, *, received: int, sent: int, stable: int) -> None:
        """Count a prompt's tokens as the client sent it, as it went upstream, and the part a prompt cache can reuse."""
        self._prompt_tokens.add(tenant, model, "received", by=received)
        self._prompt_tokens.add(tenant, model, "sent", by=sent)
        self._stable_tokens.add(tenant, model, by=stable)

    def usage(self, tenant: str, model: str, *, prompt: int, cached: int, completion: int) -> None:
        """Count the provider's own figures of one call; cached tokens are a part of the prompt's."""
        self._upstream_tokens.add(tenant, model, "prompt", by=prompt)
        self._upstream_tokens.add(tenant, model, "cached", by=cached)
        self._upstream_tokens.add(tenant, model, "completion", by=completion)

    def estimate(self, model: str, ratio: float) -> None:
        """Record the estimate of a prompt's tokens divided by the provider's figure."""
        self._estimate_ratio.observe(ratio, model)

    def window_pass(self, tenant: str, policy: str, outcome: str, mode: Mode) -> None:
        """Count one pass of a policy; `outcome` is one word of the header X-Transom-Window."""
        self._window_passes.add(tenant, policy, outcome, mode)

    def over_budget(self, tenant: str, policy: str) -> None:
        """Count a view that was sent although it is over its limit."""
        self._over_budget.add(tenant, policy)

    def length_retry(self, model: str) -> None:
        """Count a retry after the upstream said that the context is too long."""
        self._length_retries.add(model)

    def truncation_suspected(self, model: str) -> None:
        """Count a prompt of which the upstream read noticeably less than was sent."""
        self._truncations.add(model)

    def items_removed(self, tenant: str, policy: str, trimmer: str, items: int) -> None:
        """Count items a trimmer newly removed."""
        self._items_removed.add(tenant, policy, trimmer, by=items)

    def summary(self, tenant: str, policy: str, model: str, outcome: SummaryOutcome) -> None:
        """Count what became of one wish for a summary."""
        self._summaries.add(tenant, policy, model, outcome)

    def summary_call(self, tenant: str, model: str, *, seconds: float, prompt: int, completion: int) -> None:
        """Record one call of the summary model and the tokens it used."""
        self._summary_s.observe(seconds, model)
        self._summary_tokens.add(tenant, model, "prompt", by=prompt)
        self._summary_tokens.add(tenant, model, "completion", by=completion)

    def tool_limit(self, tenant: str, policy: str, action: str) -> None:
        """Count what was done at the tool-call cap."""
        self._tool_limit.add(tenant, policy, action)

    def session_source(self, tenant: str, source: SessionSource) -> None:
        """Count where a request's session came from."""
        self._session_source.add(tenant, source)

    def history_match(self, kind: HistoryMatch) -> None:
        """Count how a request continues what is stored."""
        self._history_match.add(kind)

    def storage(self, operation: str, seconds: float) -> None:
        """Record the time of one storage operation of requests and upkeep."""
        self._storage_s.observe(seconds, operation)

    def storage_error(self, operation: str) -> None:
        """Count a storage operation that failed."""
        self._storage_errors.add(operation)

    def stored(self, sessions: int, database_bytes: int) -> None:
        """Set how much is stored."""
        self._sessions.set(sessions)
        self._database_bytes.set(database_bytes)

    def reload(self, outcome: ReloadOutcome) -> None:
        """Count one reload of the configuration."""
        self._reloads.labels(outcome).inc()

    def settle(self) -> None:
        """Make what was counted visible to a scrape that another process answers."""
        for tallied in self._tallied:
            tallied.settle()
        self._in_flight.set(self.in_flight())

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format; with several workers, the sum over all of them."""
        self.settle()
        if MULTIPROCESS_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        everyone = CollectorRegistry()
        multiprocess.MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
