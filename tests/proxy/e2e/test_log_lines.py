"""What the log tells an operator: which error, whose request, which server, what was folded; and nothing else."""

import socket
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream, event, stream
from tests.proxy.e2e.served import CHAT, SECRET, Proxy, Talk, key, request, user
from tests.proxy.e2e.test_compress import until

HELLO = {"model": "plain", "messages": [user("CANARY")]}
Line = MutableMapping[str, Any]


class Lines:
    """The log's lines."""

    def __init__(self, lines: list[Line]) -> None:
        self.all = lines

    def one(self, event: str) -> Line:
        """Wait for the one line of an event: a request's is written after its answer has gone out."""
        until(lambda: [line for line in self.all if line["event"] == event])
        (line,) = [line for line in self.all if line["event"] == event]
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as captured:
        yield Lines(captured)


@pytest.mark.parametrize(
    ("path", "body", "known"),
    [
        (CHAT, HELLO | {"model": "nope"}, {"code": "model_not_found", "tenant": "acme"}),
        (CHAT, b"{", {"code": "invalid_request_error", "tenant": "acme"}),
        ("/v1/embeddings", {"model": "nope"}, {"code": "model_not_found", "tenant": "acme"}),
        ("/v1/files", {"model": "plain"}, {"code": "endpoint_not_allowed", "tenant": "acme"}),
        ("/chat/completions", HELLO, {"code": "unknown_url"}),
        ("/admin/sessions/nowhere", None, {"code": "session_not_found"}),
    ],
)
def test_the_line_of_a_refused_request_has_its_code(
    proxy: Proxy, lines: Lines, path: str, body: Any, known: dict[str, str]
) -> None:
    got = request(proxy.port, path, body, key("acme"))
    line = lines.one("request")
    assert line["status"] == got.status >= 400
    assert known.items() <= line.items()
    assert "CANARY" not in str(lines.all)


@pytest.mark.parametrize("begun", [False, True], ids=["first", "on the way"])
def test_an_error_within_an_answer_has_its_code_too(
    proxy: Proxy, lines: Lines, upstream: FakeUpstream, begun: bool
) -> None:
    said = b'data: {"error": {"message": "CANARY", "code": "engine_overloaded"}}\n\n'
    upstream.on("plain", stream([event({"content": "CANARY"}), said] if begun else [said]))
    proxy.post(HELLO | {"stream": True})
    assert lines.one("request")["code"] == ("engine_overloaded" if begun else "upstream_bad_response")
    assert "CANARY" not in str(lines.all)


def test_a_refused_header_is_told_with_the_model(proxy: Proxy, lines: Lines) -> None:
    proxy.post(HELLO, x_transom_policy="off")
    line = lines.one("request")
    assert (line["code"], line["tenant"], line["model"]) == ("override_not_allowed", "acme", "plain")


def test_without_a_tenant_only_the_code_is_known(proxy: Proxy, lines: Lines) -> None:
    proxy.post(HELLO, tenant=None)
    line = lines.one("request")
    assert line["code"] == "invalid_api_key"
    assert "tenant" not in line


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_what_the_upstream_refuses_has_its_own_code(
    proxy: Proxy, upstream: FakeUpstream, lines: Lines, path: str
) -> None:
    refusal = Answer([b'{"error": {"message": "CANARY", "code": "insufficient_quota"}}'], 429)
    upstream.on("plain", refusal)
    upstream.at("embeddings", refusal)
    assert request(proxy.port, path, HELLO, key("acme")).status == 429
    line = lines.one("request")
    assert (line["code"], line["tenant"], line["model"]) == ("insufficient_quota", "acme", "plain")
    assert "CANARY" not in str(lines.all)


def test_a_good_answer_has_no_code(proxy: Proxy, upstream: FakeUpstream, lines: Lines) -> None:
    assert proxy.post(HELLO).status == 200
    assert "code" not in lines.one("request")


@pytest.mark.parametrize(
    ("path", "host", "reason"),
    [
        (CHAT, "127.0.0.1", "Connection refused"),
        ("/v1/embeddings?secret=CANARY", "127.0.0.1", "Connection refused"),
        (CHAT, "nowhere.invalid", "The name of the model's server could not be resolved."),
    ],
)
def test_an_upstream_that_cannot_be_reached_is_named(
    serve: Serve, lines: Lines, path: str, host: str, reason: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    params = {"model": "openai/plain", "api_base": f"http://{host}:{port}/v1?CANARY=1", "api_key": SECRET}
    proxy = serve(
        model_list=[{"model_name": "plain", "litellm_params": params}], tenants={"default": {"policy": "plain"}}
    )
    got = request(proxy.port, path, HELLO)
    assert got.error[:2] == (502, "upstream_unreachable")
    line = lines.one("upstream unreachable")
    assert line == {
        "event": "upstream unreachable",
        "log_level": "warning",
        "host": f"{host}:{port}",
        "reason": reason,
    }
    assert lines.one("request")["code"] == "upstream_unreachable"
    assert not any(secret in str(lines.all) for secret in ("CANARY", SECRET))


def test_a_summary_leaves_one_line_without_its_words(proxy: Proxy, upstream: FakeUpstream, lines: Lines) -> None:
    upstream.number_summaries("fill")
    talk = Talk(proxy, "fill", "told")
    got = talk.until("compressed")
    line = lines.one("summary created")
    assert line["log_level"] == "info"
    named = {"tenant": "acme", "policy": "fill", "model": "fill", "session": proxy.session_id("told").hex()}
    assert named.items() <= line.items()
    (summary,) = proxy.rows("told").summaries
    assert line["tokens_after"] == summary["tokens"] < line["tokens_before"] < got.tokens["before"]
    assert line["messages"] == summary["position"]
    assert line["seconds"] >= 0
    assert not any(word in str(line) for word in ("Turn", "water", "told"))
