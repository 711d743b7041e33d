"""What is refused, with which status, code and place: each row of the table of errors that concerns the client."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream, Gate, say
from tests.proxy.e2e.served import CHAT, Proxy, key, request, user
from tests.proxy.e2e.test_compress import until

HELLO = {"model": "plain", "messages": [user("Hello.")]}


def deep(levels: int) -> bytes:
    nested = b"[" * levels + b"]" * levels
    return b'{"model":"plain","messages":[{"role":"user","content":"x"}],"metadata":%b}' % nested


BAD: list[tuple[str, bytes, str]] = [
    ("empty", b"", "body"),
    ("not JSON", b"{nope", "body"),
    ("BOM", b"\xef\xbb\xbf" + json.dumps(HELLO).encode(), "body"),
    ("array", b"[1]", "body"),
    ("string", b'"x"', "body"),
    ("not UTF-8", b'{"model":"plain","user":"\xff\xfe","messages":[{"role":"user","content":"x"}]}', "user"),
    ("not UTF-8 in a message", b'{"model":"plain","messages":[{"role":"user","content":"\xff"}]}', "messages[0]"),
    ("no messages", b'{"model":"plain"}', "messages"),
    ("empty messages", b'{"model":"plain","messages":[ ]}', "messages"),
    ("messages no array", b'{"model":"plain","messages":{"role":"user"}}', "messages"),
    ("null messages", b'{"model":"plain","messages":null}', "messages"),
    ("message no object", b'{"model":"plain","messages":["x"]}', "messages[0].role"),
    ("no role", b'{"model":"plain","messages":[{"role":"user","content":"x"},{"content":"x"}]}', "messages[1].role"),
    ("role no string", b'{"model":"plain","messages":[{"role":7,"content":"x"}]}', "messages[0].role"),
    ("no model", b'{"messages":[{"role":"user","content":"x"}]}', "model"),
    ("model no string", b'{"model":3,"messages":[{"role":"user","content":"x"}]}', "model"),
    ("nested 101", deep(100), "metadata"),
    ("nested 100,000", deep(100_000), "metadata"),
]


@pytest.mark.parametrize(("body", "param"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_bodies_are_refused_with_their_place(proxy: Proxy, upstream: FakeUpstream, body: bytes, param: str) -> None:
    status, code, place = proxy.post(body).error
    assert (status, code) == (400, "invalid_request_error")
    assert place == param or (place == "body" and "nested" in param) or param == "metadata"
    assert upstream.received == []


ACCEPTED: list[tuple[str, bytes]] = [
    ("duplicate keys", b'{"model":"other","model":"plain","messages":[{"role":"user","content":"x"}]}'),
    ("5,000 digits", b'{"model":"plain","seed":%b,"messages":[{"role":"user","content":"x"}]}' % (b"9" * 5000)),
    ("half an emoji", b'{"model":"plain","messages":[{"role":"user","content":"\\ud83d"}]}'),
    ("nested 90", deep(90)),
    ("NUL", b'{"model":"plain","messages":[{"role":"user","content":"a\\u0000b"}]}'),
    ("control tokens", b'{"model":"plain","messages":[{"role":"user","content":"<|endoftext|><|im_start|>"}]}'),
    ("no content", b'{"model":"plain","messages":[{"role":"user"}]}'),
    ("a system message only", b'{"model":"plain","messages":[{"role":"system","content":"Be."}]}'),
    ("numbers as content", b'{"model":"plain","messages":[{"role":"user","content":12}]}'),
]


@pytest.mark.parametrize("body", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_odd_bodies_are_accepted(proxy: Proxy, upstream: FakeUpstream, body: bytes) -> None:
    got = proxy.post(body)
    assert got.status == 200
    assert "x-transom-storage" not in got.headers
    assert len(upstream.received) == 1


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/xml; charset=utf-8", "multipart/form-data; boundary=x", "application/jsonp"]
)
def test_what_does_not_call_itself_json_is_refused(proxy: Proxy, upstream: FakeUpstream, kind: str) -> None:
    assert proxy.post(HELLO, content_type=kind).error == (400, "invalid_request_error", "Content-Type")
    assert upstream.received == []


@pytest.mark.parametrize("kind", ["", "Application/JSON", "application/json; charset=utf-8", "application/vnd.x+json"])
def test_json_has_several_names(proxy: Proxy, kind: str) -> None:
    assert proxy.post(HELLO, content_type=kind).status == 200


def test_what_curl_calls_a_form_goes_up_as_the_json_it_is(proxy: Proxy, upstream: FakeUpstream) -> None:
    form = "application/x-www-form-urlencoded"
    assert proxy.post(HELLO, content_type=form).status == 200
    assert upstream.received[0].headers["content-type"] == "application/json"
    assert proxy.post(b"model=plain&messages=Hello", content_type=form).error == (400, "invalid_request_error", "body")


def test_half_an_emoji_is_replaced(proxy: Proxy, upstream: FakeUpstream) -> None:
    proxy.post(dict(ACCEPTED)["half an emoji"])
    assert upstream.received[0].texts == ["�"]


def test_nan_is_not_json(proxy: Proxy, upstream: FakeUpstream) -> None:
    body = b'{"model":"plain","temperature":NaN,"messages":[{"role":"user","content":"x"}]}'
    assert proxy.post(body).error == (400, "invalid_request_error", "body")


def test_bodies_over_the_limit(serve: Serve) -> None:
    proxy = serve(limits={"body_bytes": 1000, "messages": 3})
    big = json.dumps(HELLO | {"user": "x" * 1000}).encode()
    refused = proxy.post(big)
    assert refused.error[:2] == (413, "body_too_large")
    assert "1000 bytes" in refused.json["error"]["message"]
    chunked = request(proxy.port, body=None, headers=key("acme"))
    assert chunked.status == 405  # a GET of this path
    many = {"model": "plain", "messages": [user("x")] * 4}
    assert proxy.post(many).error == (400, "invalid_request_error", "messages")


def test_compressed_bodies(proxy: Proxy) -> None:
    assert proxy.post(b"\x1f\x8b", content_encoding="gzip").error[:2] == (415, "unsupported_encoding")


def test_models_that_are_not_there_or_not_allowed(serve: Serve) -> None:
    proxy = serve()
    tenants = proxy._mapping["tenants"]
    tenants["acme"]["models"] = {"plain": "plain"}
    proxy.reconfigure(tenants=tenants)
    missing = proxy.post(HELLO | {"model": "nope"})
    assert missing.error == (404, "model_not_found", "model")
    assert "`nope`" in missing.json["error"]["message"]
    forbidden = proxy.post(HELLO | {"model": "fill"})
    assert forbidden.error == (403, "model_not_allowed", "model")
    assert forbidden.json["error"]["message"] == "This key may not use the model `fill`; it may use: plain."
    assert proxy.post(HELLO | {"model": "fill"}, tenant="beta").status == 200
    listed = request(proxy.port, "/v1/models", headers=key("acme")).json
    assert [m["id"] for m in listed["data"]] == ["plain"]
    assert request(proxy.port, "/v1/models/plain", headers=key("acme")).json["id"] == "plain"
    assert request(proxy.port, "/v1/models/fill", headers=key("acme")).error == (404, "model_not_found", "model")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic key-of-acme"},
        {"x-transom-key": "wrong", "authorization": "Bearer key-of-acme"},
        {"authorization": "Bearer k\xe9y"},
    ],
    ids=["none", "wrong", "empty", "basic", "wrong own", "not ASCII"],
)
def test_keys_that_belong_to_nobody(proxy: Proxy, upstream: FakeUpstream, headers: dict[str, str]) -> None:
    got = request(proxy.port, body=HELLO, headers=headers)
    assert got.error[:2] == (401, "invalid_api_key")
    assert request(proxy.port, "/v1/models", headers=headers).error[:2] == (401, "invalid_api_key")
    assert upstream.received == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"authorization": "Bearer anything"}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "evil.example"}, 401),
        ({"x-forwarded-for": "127.0.0.1"}, 401),
        ({"forwarded": "for=127.0.0.1"}, 401),
        ({"origin": "http://evil.example"}, 401),
        ({"origin": "null"}, 401),
        ({"origin": "http://good.example"}, 200),
    ],
)
def test_without_keys_only_this_machine_is_served(anonymous: Proxy, headers: dict[str, str], status: int) -> None:
    got = request(anonymous.port, body=HELLO, headers=headers)
    assert got.status == status
    if status == 401:
        assert got.error[:2] == (401, "invalid_api_key")
        assert got.json["error"]["message"] == (
            "No keys are configured, so only this machine may ask, directly and from no web page; give tenants keys, "
            "or set server.allow_anonymous or server.cors_origins, to let others in."
        )


def test_a_key_in_the_wrong_header(proxy: Proxy) -> None:
    got = request(proxy.port, body=HELLO, headers={"x-api-key": "key-of-acme"})
    assert got.error[:2] == (401, "invalid_api_key")
    assert got.json["error"]["message"] == "The key came in x-api-key; send it as `Authorization: Bearer …`."
    wrong = request(proxy.port, body=HELLO, headers={"x-api-key": "key-of-acme", "authorization": "Bearer wrong"})
    assert "No valid API key" in wrong.json["error"]["message"]


@pytest.fixture
def anonymous(serve: Serve) -> Proxy:
    proxy = serve(server={"cors_origins": ["http://good.example"]})
    proxy.reconfigure(tenants={"default": {"policy": "plain"}})
    return proxy


def test_endpoints_that_are_not_windowed(proxy: Proxy) -> None:
    for path in ("/v1/responses", "/v1/messages"):
        got = request(proxy.port, path, {"model": "plain"}, key("acme"))
        assert got.error[:2] == (404, "not_windowed")
        assert "chat/completions" in got.json["error"]["message"]


def test_the_accounts_own_objects_are_not_relayed(proxy: Proxy, upstream: FakeUpstream) -> None:
    for path in ("/v1/files", "/v1/batches", "/v1/chat/completions/abc", "/v1/vector_stores"):
        assert request(proxy.port, path, headers=key("acme")).error[:2] == (403, "endpoint_not_allowed"), path
    assert upstream.received == []


@pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("POST", "/healthz"), ("GET", "/v1")])
def test_what_has_no_route_is_refused_in_openais_shape(proxy: Proxy, method: str, path: str) -> None:
    got = request(proxy.port, path, {} if method == "POST" else None, key("acme"), method)
    assert got.error[0] in (403, 404, 405)


@pytest.mark.parametrize("path", ["/chat/completions", "/models", "/embeddings", "/audio/speech"])
def test_a_path_without_its_version_is_told_what_was_meant(proxy: Proxy, path: str) -> None:
    got = request(proxy.port, path, {"model": "plain"}, key("acme"))
    assert got.error[:2] == (404, "unknown_url")
    assert f"did you mean /v1{path}?" in got.json["error"]["message"]
    assert "did you mean" not in request(proxy.port, "/chat", {}).json["error"]["message"]


def test_chat_completions_are_asked_for_with_post(proxy: Proxy, upstream: FakeUpstream) -> None:
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PROPFIND"):
        got = request(proxy.port, CHAT, headers=key("acme"), method=method)
        assert got.error[:2] == (405, "method_not_allowed")
        assert got.headers["allow"] == "POST"
    assert upstream.received == []


def test_where_nobody_has_a_key_a_refused_endpoint_speaks_of_none(anonymous: Proxy) -> None:
    got = request(anonymous.port, "/v1/files")
    assert got.error[:2] == (403, "endpoint_not_allowed")
    assert "key" not in got.json["error"]["message"]
    assert "`relay`" in got.json["error"]["message"]


def test_more_requests_than_may_be_in_flight(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(limits={"in_flight": 2})
    hold = Gate()
    held: Any = say()
    held.before = hold
    upstream.on("plain", held)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(proxy.post, HELLO) for _ in range(2)]
        until(lambda: len(upstream.received) == 2)
        refused = proxy.post(HELLO)
        hold.open()
        assert [w.result().status for w in waiting] == [200, 200]
    assert refused.error[:2] == (503, "overloaded")
    assert int(refused.headers["retry-after"]) > 0
    assert proxy.post(HELLO).status == 200


@pytest.mark.parametrize("name", ["x-transom-policy", "x-transom-window"])
def test_overrides_need_permission(proxy: Proxy, upstream: FakeUpstream, name: str) -> None:
    got = request(proxy.port, body=HELLO, headers=key("acme") | {name: "off"})
    assert got.error[:2] == (403, "override_not_allowed")
    assert upstream.received == []


def test_a_policy_that_is_not_there(serve: Serve) -> None:
    proxy = serve()
    tenants = proxy._mapping["tenants"]
    tenants["acme"]["may_override"] = ["policy"]
    proxy.reconfigure(tenants=tenants)
    got = request(proxy.port, body=HELLO, headers=key("acme") | {"x-transom-policy": "n" * 100})
    assert got.error == (400, "invalid_request_error", "X-Transom-Policy")
    said = got.json["error"]["message"]
    known = ", ".join(sorted(proxy._mapping["policies"]))
    assert said == f"There is no policy `{'n' * 64}…`; there are: {known}."
