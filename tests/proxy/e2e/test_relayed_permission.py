"""Whose calls are relayed: the account's own objects are nobody's but the account's, unless someone says otherwise."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.proxy.e2e.conftest import POLICIES, Serve, sqlite
from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream
from tests.proxy.e2e.served import SECRET, Got, Proxy, config, key, request, serving
from tests.proxy.e2e.test_relayed import STATELESS, entry, hashed

TENANTS: dict[str, dict[str, Any]] = {
    "acme": {},
    "beta": {},
    "own": {"upstream_key": "client"},
    "some": {"relay": ["files", "/v1/batches/*", "chat/completions", "responses", "fine_tuning"]},
    "all": {"relay": "all"},
    "none": {"relay": "none"},
    "few": {"models": {"plain": "plain"}},
}
# What OpenAI's API keeps in an account, each with an id of another tenant.
OBJECTS = [
    "files",
    "files/file-1",
    "files/file-1/content",
    "batches",
    "batches/batch_1",
    "batches/batch_1/cancel",
    "chat/completions",
    "chat/completions/chatcmpl-1",
    "chat/completions/chatcmpl-1/messages",
    "uploads/upload_1/parts",
    "fine_tuning/jobs/ftjob-1/events",
    "assistants/asst_1",
    "threads/thread_1/runs/run_1/steps",
    "vector_stores/vs_1/files/file-1",
    "containers/cntr_1/files",
    "conversations/conv_1/items",
    "evals/eval_1/runs",
    "responses/resp_1",
    "responses/resp_1/input_items",
    "realtime/sessions",
    "organization/usage/completions",
    "organization/admin_api_keys",
    "audio/voices",
    "audio/voice_consents",
    "videos/video_1/content",
    "models/ft:plain:x",
    "messages/batches",
    "anything/else",
]


@pytest.fixture(scope="module")
def relaying(running_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    database = sqlite(tmp_path_factory.mktemp("relaying"))
    models = [entry("plain", "openai/plain", running_upstream.url), entry("*", "openai/*", running_upstream.url)]
    tenants = {name: {"keys": hashed(name), "policy": "plain"} | more for name, more in TENANTS.items()}
    with serving(
        config(running_upstream.url, POLICIES, database=database, model_list=models, tenants=tenants)
    ) as proxy:
        yield proxy


def call(proxy: Proxy, tenant: str, method: str, path: str, body: Any = None, **headers: str) -> Got:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(proxy.port, f"/v1/{path}", body, key(tenant) | named, method)


# ---------------------------------------------------------------------- two tenants, one account
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH"])
@pytest.mark.parametrize("tenant", ["acme", "beta", "none", "few"])
def test_nobody_reaches_what_lies_in_the_account(
    relaying: Proxy, upstream: FakeUpstream, tenant: str, method: str
) -> None:
    for path in OBJECTS:
        if (method, path) in (("POST", "chat/completions"), ("GET", "models/ft:plain:x")):
            continue  # answered here
        body = None if method == "GET" else {"model": "plain", "file_id": "file-1"}
        refused = (405, "method_not_allowed") if path == "chat/completions" else (403, "endpoint_not_allowed")
        assert call(relaying, tenant, method, path, body).error[:2] == refused, path
    assert upstream.received == []


def test_a_model_that_was_tuned_is_only_looked_up_here(relaying: Proxy, upstream: FakeUpstream) -> None:
    """A name that `"*"` passes through is a model to whom it is allowed."""
    found = call(relaying, "acme", "GET", "models/ft:plain:x")
    assert (found.status, found.json["id"], found.json["object"]) == (200, "ft:plain:x", "model")
    assert call(relaying, "few", "GET", "models/ft:plain:x").error[:2] == (404, "model_not_found")
    assert call(relaying, "acme", "GET", "models/*").error[:2] == (404, "model_not_found")
    assert upstream.received == []


DETOURS = [
    "embeddings/../files",
    "embeddings/..%2ffiles",
    "embeddings/%2e%2e/files",
    "embeddings%2f..%2ffiles",
    "images/..%2ffiles",
    "images/%2e%2e",
    "images/..",
    "audio/speech/../../files",
    "audio/%252e%252e%252ffiles",
    "audio/..\\files",
    "embeddings;/../files",
    "embeddings%00",
    "embeddings%0d%0aX:1",
    "embeddings/",
    "/files",
    "./files",
    "%66iles",
    "FILES",
    "embeddings%3f",
    "images/generations%23",
]


@pytest.mark.parametrize("path", DETOURS)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_no_detour_leads_there(relaying: Proxy, upstream: FakeUpstream, method: str, path: str) -> None:
    got = call(relaying, "acme", method, path, {"model": "plain"} if method == "POST" else None)
    assert got.error[0] in (403, 404)
    assert upstream.received == []


def test_only_with_a_key(relaying: Proxy, upstream: FakeUpstream) -> None:
    for path in ("embeddings", "files", "responses", "nowhere"):
        for headers in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Bearer key-of-acme", "x-transom-key": "w"},
        ):
            got = request(relaying.port, f"/v1/{path}", {"model": "plain"}, headers)
            assert got.error[:2] == (401, "invalid_api_key")
    assert upstream.received == []


# ---------------------------------------------------------------------- where someone says otherwise
@pytest.mark.parametrize("path", STATELESS)
def test_none_is_none(relaying: Proxy, upstream: FakeUpstream, path: str) -> None:
    assert call(relaying, "none", "POST", path, {"model": "plain"}).error[:2] == (403, "endpoint_not_allowed")
    assert upstream.received == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "files?limit=2&after=file-1"),
        ("POST", "files"),
        ("DELETE", "files/file-1"),
        ("GET", "files/file-1/content"),
        ("POST", "batches/batch_1/cancel"),
        ("GET", "chat/completions"),
        ("DELETE", "chat/completions/chatcmpl-1"),
        ("GET", "responses/resp_1"),
        ("POST", "fine_tuning/jobs"),
    ],
)
@pytest.mark.parametrize("tenant", ["some", "all", "own"])
def test_what_is_named_is_relayed(relaying: Proxy, upstream: FakeUpstream, tenant: str, method: str, path: str) -> None:
    own = {"x_transom_key": "key-of-own", "authorization": "Bearer sk-of-the-client"} if tenant == "own" else {}
    plain, _, query = path.partition("?")
    upstream.at(plain, Answer([b'{"id": "file-1"}']))
    body = b"\x00\xff not JSON" if method == "POST" else None
    got = call(relaying, tenant, method, path, body, content_type="application/octet-stream", **own)
    assert (got.status, got.body, got.window) == (200, b'{"id": "file-1"}', ["bypassed"])
    (received,) = upstream.received
    assert (received.method, received.path, received.query) == (method, f"/v1/{plain}", query)
    assert received.body == (body or b"")
    assert received.headers["authorization"] == f"Bearer {'sk-of-the-client' if own else SECRET}"
    assert "x-transom-key" not in received.headers


def test_the_rest_is_not(relaying: Proxy, upstream: FakeUpstream) -> None:
    for path in ("filesystem", "vector_stores", "batch", "fine-tuning/jobs"):
        assert call(relaying, "some", "GET", path).error[:2] == (403, "endpoint_not_allowed")
    assert upstream.received == []


def test_the_clients_own_key_is_needed_itself(relaying: Proxy, upstream: FakeUpstream) -> None:
    """Who sends the tenant's key alone would be served with the configured one."""
    assert call(relaying, "own", "GET", "files").error[:2] == (403, "endpoint_not_allowed")
    assert upstream.received == []


def test_a_refusal_of_the_clients_own_key_is_the_clients(relaying: Proxy, upstream: FakeUpstream) -> None:
    refusal = b'{"error": {"message": "Incorrect API key sk-of-the-client"}}'
    upstream.at("files", Answer([refusal], 401))
    own = {"x_transom_key": "key-of-own", "authorization": "Bearer sk-of-the-client"}
    got = call(relaying, "own", "GET", "files", openai_organization="org-1", **own)
    assert (got.status, got.body) == (401, refusal)
    assert upstream.received[0].headers["openai-organization"] == "org-1"


def test_an_answer_without_content(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("files/file-1", Answer([], 204, {}))
    with closing(http.client.HTTPConnection("127.0.0.1", relaying.port, timeout=60)) as connection:
        for _ in range(2):  # on one connection: nothing of the first may be left
            connection.request("DELETE", "/v1/files/file-1", headers=key("all"))
            response = connection.getresponse()
            assert (response.status, response.read()) == (204, b"")


def test_a_model_that_is_named_must_be_allowed_there_too(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(
        model_list=[entry("plain", "openai/up", upstream.url), entry("other", "openai/other", upstream.url)],
        tenants={"few": {"keys": hashed("few"), "policy": "plain", "models": {"plain": "plain"}, "relay": "all"}},
    )
    json = {"content_type": "application/json"}
    jobs = "fine_tuning/jobs"
    assert call(proxy, "few", "POST", jobs, {"model": "other"}, **json).error[:2] == (403, "model_not_allowed")
    assert call(proxy, "few", "POST", jobs, {"model": "plain", "x": 1}, **json).status == 200
    assert upstream.received[0].body == b'{"model":"up","x":1}'


def test_an_account_must_be_the_only_one(serve: Serve, upstream: FakeUpstream) -> None:
    one = entry("plain", "openai/plain", upstream.url)
    tenants = {"all": {"keys": hashed("all"), "policy": "plain", "relay": "all"}}
    proxy = serve(model_list=[one, entry("second", "openai/second", upstream.url)], tenants=tenants)
    assert call(proxy, "all", "GET", "files").status == 200
    for more in ({"api_key": "sk-another"}, {"api_base": "http://127.0.0.1:1/v1"}, {"organization": "org-2"}):
        proxy.reconfigure(model_list=[one, entry("second", "openai/second", upstream.url, **more)])
        assert call(proxy, "all", "GET", "files").error == (400, "invalid_request_error", None)
    assert len(upstream.received) == 1


def test_without_a_name_any_model_must_be_allowed(relaying: Proxy, upstream: FakeUpstream) -> None:
    assert call(relaying, "acme", "POST", "moderations", {"input": "x"}).status == 200
    assert upstream.received[0].body == b'{"input": "x"}'
    refused = call(relaying, "few", "POST", "moderations", {"input": "x"})
    assert refused.error == (400, "invalid_request_error", "model")
    assert len(upstream.received) == 1


# ---------------------------------------------------------------------- what there is not
def test_conversations_that_would_pass_without_a_window(relaying: Proxy, upstream: FakeUpstream) -> None:
    for tenant in ("acme", "all", "some", "none"):
        for path in ("responses", "messages"):
            got = call(relaying, tenant, "POST", path, {"model": "plain"})
            assert got.error[:2] == (404, "not_windowed")
            assert "/v1/chat/completions" in got.json["error"]["message"]
    assert upstream.received == []


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/v1/embeddings", (405, "method_not_allowed")),
        ("DELETE", "/v1/images/generations", (405, "method_not_allowed")),
        ("OPTIONS", "/v1/embeddings", (405, "method_not_allowed")),
        ("TRACE", "/v1/embeddings", (405, "method_not_allowed")),
        ("POST", "/v1/models", (403, "endpoint_not_allowed")),
        ("GET", "/v1/nowhere", (403, "endpoint_not_allowed")),
        ("GET", "/v1/", (404, "unknown_url")),
        ("GET", "/v1", (404, "unknown_url")),
        ("GET", "/nowhere", (404, "unknown_url")),
        ("POST", "/chat/completions", (404, "unknown_url")),
        ("POST", "/healthz", (405, "method_not_allowed")),
    ],
)
def test_what_is_not_there(relaying: Proxy, method: str, path: str, error: tuple[int, str]) -> None:
    got = request(relaying.port, path, None, key("acme"), method)
    assert got.error[:2] == error
    assert ("allow" in got.headers) is (error[0] == 405)


def test_a_head_has_no_body(relaying: Proxy) -> None:
    got = request(relaying.port, "/v1/embeddings", None, key("acme"), "HEAD")
    assert (got.status, got.body) == (405, b"")
