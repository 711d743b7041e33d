"""What the proxy tells of the demo's conversation afterwards: its admin API and its metrics, read and never guessed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from transom.policies.render import summary_body
from transom.policies.view import Summary, View
from transom.proxy import recipes
from transom.proxy.cli.demo.server import Proxy, ProxyFailed


@dataclass(frozen=True, slots=True)
class Told:
    """A summary as the proxy stored it: `replaces` counts the conversation's messages that it stands for.

    `previous` is the id of the summary it was made from.
    """

    id: str
    previous: str | None
    replaces: int
    tokens: int
    body: str
    constraints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """What went upstream with a request.

    Attributes:
        messages: their number, the system message, the summary and a note of the proxy's included.
        length: of the thread then, without the system message.
        kept: positions in the thread that were sent.
        left_out: positions that were neither sent nor stood for by the summary.
        summary: the id of the summary that was sent.
    """

    messages: int
    length: int
    kept: frozenset[int]
    left_out: tuple[int, ...]
    summary: str | None


class Timeline:
    """Reads the one session of a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._path = ""
        self._session: dict[str, Any] = {}

    def refresh(self) -> None:
        """Read the session anew. Raises ProxyFailed."""
        if not self._path:
            self._path = f"/admin/sessions/{self._listed()[0]['id']}"
        self._session = self._proxy.get_json(self._path)

    def _listed(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self._proxy.get_json("/admin/sessions")["sessions"]
        if not listed:
            raise ProxyFailed("the proxy stored no session.")
        return listed

    @property
    def sessions(self) -> int:
        """Return how many sessions the proxy stores."""
        return len(self._listed())

    @property
    def messages(self) -> int:
        """Return how many messages are stored, the answers included."""
        return len(self._session["messages"])

    def summaries(self) -> list[Told]:
        """Return the summaries, oldest first."""
        return [
            Told(
                row["id"],
                row["previous"],
                row["position"],
                row["tokens"],
                summary_body(row["text"]),
                tuple(row["constraints"]),
            )
            for row in self._session["summaries"]
        ]

    def tokens_of(self, positions: Iterable[int]) -> int:
        """Return the tokens of the messages at these positions of the thread."""
        return sum(self._session["messages"][position]["tokens"] for position in positions)

    def items_of(self, positions: Iterable[int]) -> int:
        """Return the items of the messages at these positions: a text, a tool call and a tool's result are one each."""
        return sum(self._session["messages"][position]["items"] for position in positions)

    def sent(self, request: str) -> Sent:
        """Return what was sent upstream with a request. Raises ProxyFailed.

        It is what the proxy recorded before it sent: the view, as positions. The system message, and the note at the
        tool-call cap, are one message more each.
        """
        row = next((row for row in self._session["requests"] if row["id"] == request), None)
        view = self._view(row) if row is not None else None
        if row is None or view is None:
            raise ProxyFailed("the proxy's timeline lacks a request that it answered.")
        ids = [message["id"] for message in self._session["messages"]]
        length = ids.index(row["head"]) + 1
        kept = frozenset(view.positions(length))
        covered = view.summary.upto if view.summary else 0
        left_out = tuple(position for position in range(covered, length) if position not in kept)
        added = (row["preamble"], view.summary_message, view.recalled, row["tool_limit"])
        messages = len(kept) + sum(one is not None for one in added)
        return Sent(messages, length, kept, left_out, view.summary.id.hex() if view.summary else None)

    def _view(self, request: dict[str, Any]) -> View | None:
        key = (request["head"], request["preamble"], request["step"])
        for step in self._session["steps"]:
            if (step["head"], step["preamble"], step["policy"]) == key:
                found = recipes.from_json(step["recipe"], self._summary)
                return found[0] if found else None
        return None

    def _summary(self, summary: bytes) -> Summary | None:
        for row in self._session["summaries"]:
            if row["id"] == summary.hex():
                return Summary(summary, row["text"], row["tokens"], row["position"])
        return None

    def texts(self) -> list[str]:
        """Return every stored message as JSON, oldest first, from the session's export."""
        lines = [json.loads(line) for line in self._proxy.get(f"{self._path}/export").splitlines()]
        return [json.dumps(line["message"], ensure_ascii=False) for line in lines if line["type"] == "message"]


class Totals(NamedTuple):
    """What /metrics says at the end; tokens, but for the numbers of requests, summaries, items and capped turns."""

    received: int
    sent: int
    stable: int
    requests: int
    summaries: int
    summaries_read: int
    summaries_written: int
    cut: int
    capped: int


def read_totals(proxy: Proxy) -> Totals:
    """Read the proxy's metrics. Raises ProxyFailed."""
    samples = [
        sample for family in text_string_to_metric_families(proxy.get("/metrics").decode()) for sample in family.samples
    ]

    def total(name: str, **labels: str) -> int:
        found = (one for one in samples if one.name == f"transom_{name}_total" and labels.items() <= one.labels.items())
        return round(sum(one.value for one in found))

    return Totals(
        received=total("prompt_tokens", stage="received"),
        sent=total("prompt_tokens", stage="sent"),
        stable=total("prefix_stable_tokens"),
        requests=total("requests"),
        summaries=total("summaries", outcome="created"),
        summaries_read=total("summary_tokens", kind="prompt"),
        summaries_written=total("summary_tokens", kind="completion"),
        cut=total("items_removed", trimmer="truncate"),
        capped=total("tool_limit"),
    )
