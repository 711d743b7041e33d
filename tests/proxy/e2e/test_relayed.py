"""The endpoints beside chat: bytes up and down under the upstream's name of the model, within bounds and deadlines."""

import gzip
import http.client
import io
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from typing import Any

import pytest
from openai import OpenAI

from tests.proxy.e2e.conftest import POLICIES, Serve, sqlite
from tests.proxy.e2e.fake_upstream import STREAM, Abort, Answer, FakeUpstream, Gate
from tests.proxy.e2e.served import SECRET, Got, Proxy, answer_of, config, key, request, requesting, serving
from tests.proxy.e2e.test_compress import until

EMBED = {"model": "embed", "input": "Hello."}
STATELESS = [
    "embeddings",
    "completions",
    "moderations",
    "rerank",
    "images/generations",
    "images/edits",
    "images/variations",
    "audio/speech",
    "audio/transcriptions",
    "audio/translations",
]
JSON = {"content-type": "application/json"}


def entry(name: str, target: str, url: str, **more: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": target, "api_base": url, "api_key": SECRET} | more}


def hashed(name: str) -> list[str]:
    return ["sha256:" + sha256(f"key-of-{name}".encode()).hexdigest()]


def sections(url: str) -> dict[str, Any]:
    """Return the models and the tenants of these tests."""
    return {
        "model_list": [
            entry("plain", "openai/plain", url),
            entry("embed", "openai/text-embedding-3-small", url),
            entry("secret-model", "openai/secret-model", url),
            {"model_name": "claude", "litellm_params": {"model": "anthropic/claude", "api_key": SECRET}},
            {"model_name": "demo", "litellm_params": {"model": "transom/demo"}},
        ],
        "tenants": {
            "acme": {
                "keys": hashed("acme"),
                "policy": "plain",
                "models": dict.fromkeys(("plain", "embed", "claude", "demo"), "plain"),
            },
            "none": {"keys": hashed("none"), "policy": "plain", "relay": "none"},
        },
    }


@pytest.fixture(scope="module")
def relaying(running_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    database = sqlite(tmp_path_factory.mktemp("relaying"))
    made = config(running_upstream.url, POLICIES, database=database, **sections(running_upstream.url))
    with serving(made) as proxy:
        yield proxy


def call(proxy: Proxy, path: str, body: bytes | dict[str, Any] | None = None, **headers: str) -> Got:
    """Call an endpoint as acme; underscores in the names of headers are dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request(proxy.port, f"/v1/{path}", EMBED if body is None else body, JSON | key("acme") | named)


def form(*fields: tuple[str, str | bytes], boundary: str = "limit") -> tuple[bytes, dict[str, str]]:
    """Return a form, and its content type; bytes are a file."""
    body = b""
    for name, value in fields:
        file = b"" if isinstance(value, str) else b'; filename="a.mp3"\r\nContent-Type: audio/mpeg'
        content = value.encode() if isinstance(value, str) else value
        head = b'Content-Disposition: form-data; name="%b"%b' % (name.encode(), file)
        body += b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head, content)
    return body + b"--%b--\r\n" % boundary.encode(), {"content_type": f"multipart/form-data; boundary={boundary}"}


# ---------------------------------------------------------------------- what goes up
@pytest.mark.parametrize("path", STATELESS)
def test_every_stateless_endpoint_is_relayed(relaying: Proxy, upstream: FakeUpstream, path: str) -> None:
    body = b'{ "zz":null,"model" : "plain", "input":"h\\u00e9","x":1.50}\n'
    answer = b'{ "data":[ {"embedding":[1.50,-0]} ] }\n'
    upstream.at(path, Answer([answer]))
    got = call(relaying, path, body)
    assert (got.status, got.body) == (200, answer)
    assert got.window == ["bypassed"]
    assert [(r.path, r.method, r.body) for r in upstream.received] == [(f"/v1/{path}", "POST", body)]


def test_the_name_is_the_upstreams(relaying: Proxy, upstream: FakeUpstream) -> None:
    got = call(relaying, "embeddings", b'{"input":[1.50, 2],"model":"embed","user":null}')
    assert got.status == 200
    assert upstream.received[0].body == b'{"input":[1.50, 2],"model":"text-embedding-3-small","user":null}'


def test_of_a_doubled_name_the_last_one_counts_here_and_there(relaying: Proxy, upstream: FakeUpstream) -> None:
    assert call(relaying, "embeddings", b'{"model":"secret-model","model":"plain","input":"x"}').status == 200
    assert upstream.received[0].body == b'{"model":"plain","input":"x"}'
    assert call(relaying, "embeddings", b'{"model":"plain","model":"secret-model"}').error[1] == "model_not_allowed"


def test_a_form_keeps_its_bytes_but_for_the_name(relaying: Proxy, upstream: FakeUpstream) -> None:
    sound = bytes(range(256)) * 40 + b"\r\n--limi\r\n--"
    body, headers = form(("file", sound), ("model", "embed"), ("language", "dé"))
    assert call(relaying, "audio/transcriptions", body, **headers).status == 200
    received = upstream.received[0]
    assert received.body == body.replace(b"\r\n\r\nembed\r\n", b"\r\n\r\ntext-embedding-3-small\r\n")
    assert received.headers["content-type"] == headers["content_type"]
    body, headers = form(("model", "plain"), ("file", sound))
    assert call(relaying, "audio/transcriptions", body, **headers).status == 200
    assert upstream.received[1].body == body


def test_a_form_of_several_megabytes(relaying: Proxy, upstream: FakeUpstream) -> None:
    body, headers = form(("file", b"\x00\xff\r\n" * 1_500_000), ("model", "embed"))
    assert call(relaying, "audio/translations", body, **headers).status == 200
    assert len(upstream.received[0].body) == len(body) + len("text-embedding-3-small") - len("embed")


def test_what_is_read_as_json_is_sent_as_json(relaying: Proxy, upstream: FakeUpstream) -> None:
    body = b'{"model":"plain","input":"&model=secret-model&"}'
    assert call(relaying, "embeddings", body, content_type="application/x-www-form-urlencoded").status == 200
    assert upstream.received[0].headers["content-type"] == "application/json"


def test_headers_and_query_go_up_by_list(relaying: Proxy, upstream: FakeUpstream) -> None:
    got = call(
        relaying,
        "embeddings?api-version=1&x=%20",
        cookie="a=1",
        x_forwarded_for="10.0.0.1",
        openai_organization="org",
        x_stainless_lang="python",
        x_session_id="s",
        x_custom="1",
        accept_encoding="gzip",
    )
    assert got.status == 200
    up = upstream.received[0]
    assert up.query == "api-version=1&x=%20"
    assert up.headers["authorization"] == f"Bearer {SECRET}"
    assert up.headers["accept-encoding"] == "identity"
    assert up.headers["x-stainless-lang"] == "python"
    assert not {"cookie", "x-forwarded-for", "openai-organization", "x-session-id", "x-custom"} & up.headers.keys()


# ---------------------------------------------------------------------- what comes down
def test_the_answers_headers_come_back(relaying: Proxy, upstream: FakeUpstream) -> None:
    headers = JSON | {"x-ratelimit-limit-requests": "7", "openai-version": "1", "server": "x", "set-cookie": "a=1"}
    upstream.at("embeddings", Answer([b"{}"], headers=headers))
    got = call(relaying, "embeddings", x_request_id="my-own-id")
    assert got.headers["x-ratelimit-limit-requests"] == "7"
    assert got.headers["openai-version"] == "1"
    assert got.headers["x-request-id"] == "my-own-id"
    assert got.headers["content-length"] == "2"
    assert not {"server", "set-cookie"} & got.headers.keys()


def test_bytes_come_as_they_are_spoken(relaying: Proxy, upstream: FakeUpstream) -> None:
    hold = Gate()
    upstream.at("audio/speech", Answer([b"\xff\xfb\x00", hold, b"\r\n\r\n"], headers={"content-type": "audio/mpeg"}))
    connection = http.client.HTTPConnection("127.0.0.1", relaying.port, timeout=60)
    with closing(connection):
        connection.request("POST", "/v1/audio/speech", json.dumps({"model": "plain"}), key("acme"))
        response = connection.getresponse()
        assert response.headers["content-type"] == "audio/mpeg"
        assert response.read(3) == b"\xff\xfb\x00"  # and the upstream has not ended
        hold.open()
        assert response.read() == b"\r\n\r\n"


def test_events_come_as_they_are_said(relaying: Proxy, upstream: FakeUpstream) -> None:
    hold = Gate()
    first, rest = b'event: delta\r\ndata: {"t":"h\xc3\xa9"}\r\n\r\n', b": hm\n\ndata: {}\n\ndata: [DONE]\n\ndata: cut"
    upstream.at("completions", Answer([first, hold, rest], headers=STREAM))
    connection = http.client.HTTPConnection("127.0.0.1", relaying.port, timeout=60)
    with closing(connection):
        connection.request("POST", "/v1/completions", json.dumps({"model": "plain", "stream": True}), key("acme"))
        response = connection.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-transom-window"] == "bypassed"
        assert response.read(len(first)) == first
        hold.open()
        assert response.read() == rest


def test_a_large_json_answer_is_not_collected(relaying: Proxy, upstream: FakeUpstream) -> None:
    hold = Gate()
    large = b'{"data":"' + b"x" * 3_000_000
    upstream.at("embeddings", Answer([large, hold, b'"}']))
    connection = http.client.HTTPConnection("127.0.0.1", relaying.port, timeout=60)
    with closing(connection):
        connection.request("POST", "/v1/embeddings", json.dumps(EMBED), key("acme"))
        response = connection.getresponse()
        assert response.read(2_000_000) == large[:2_000_000]
        hold.open()
        assert response.read() == large[2_000_000:] + b'"}'


def test_an_encoded_answer_is_decoded(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("embeddings", Answer([gzip.compress(b'{"data":[]}')], headers=JSON | {"content-encoding": "gzip"}))
    got = call(relaying, "embeddings")
    assert (got.body, "content-encoding" in got.headers) == (b'{"data":[]}', False)


def test_the_official_client(relaying: Proxy, upstream: FakeUpstream) -> None:
    vectors = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"}
    upstream.at("embeddings", Answer([json.dumps(vectors).encode()]))
    upstream.at("audio/transcriptions", Answer([b'{"text": "Hello."}']))
    upstream.at("audio/speech", Answer([b"\xff", b"\xfb"], headers={"content-type": "audio/mpeg"}))
    upstream.at("images/edits", Answer([b'{"created": 1, "data": [{"b64_json": "eA=="}]}']))
    with OpenAI(base_url=f"http://127.0.0.1:{relaying.port}/v1", api_key="key-of-acme", max_retries=0) as client:
        found = client.embeddings.create(model="embed", input="x", encoding_format="float")
        assert found.data[0].embedding == [0.5]
        sound = ("a.mp3", io.BytesIO(b"\x00\xff" * 100), "audio/mpeg")
        assert client.audio.transcriptions.create(model="embed", file=sound).text == "Hello."
        assert b"\r\n\r\ntext-embedding-3-small\r\n" in upstream.received[-1].body
        assert client.audio.speech.create(model="plain", voice="alloy", input="x").content == b"\xff\xfb"
        edited = client.images.edit(model="plain", image=io.BytesIO(b"\x89PNG"), prompt="x")
        assert edited.data is not None
        assert edited.data[0].b64_json == "eA=="


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"model": "nope"}, (404, "model_not_found", "model")),
        ({"model": "secret-model"}, (403, "model_not_allowed", "model")),
        ({"model": "claude"}, (400, "invalid_request_error", "model")),
        ({"model": 7}, (400, "invalid_request_error", "model")),
        ({"model": ""}, (400, "invalid_request_error", "model")),
        ({"input": "x"}, (400, "invalid_request_error", "model")),
        ({"input": "x", "model": None}, (400, "invalid_request_error", "model")),
        (b"", (400, "invalid_request_error", "body")),
        (b"[1]", (400, "invalid_request_error", "body")),
        (b"\xef\xbb\xbf{}", (400, "invalid_request_error", "body")),
        (b'{"model":"plain","x":"\xff"}', (400, "invalid_request_error", "x")),
        (b'{"model":"plain","x":%b}' % (b"[" * 120 + b"]" * 120), (400, "invalid_request_error", "x")),
    ],
)
def test_bodies_that_name_no_model_of_the_tenant(
    relaying: Proxy, upstream: FakeUpstream, body: Any, error: tuple[int, str, str]
) -> None:
    assert call(relaying, "embeddings", body).error == error
    assert upstream.received == []


GOOD, TYPE = form(("model", "plain"), ("file", b"x"))
PART = b'--limit\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
AMBIGUOUS: list[tuple[str, bytes]] = [
    ("two models", form(("model", "plain"), ("model", "secret-model"))[0]),
    ("no model", form(("file", b"x"))[0]),
    ("a file as model", form(("model", b"plain"))[0]),
    ("not closed", GOOD.removesuffix(b"--\r\n") + b"\r\n"),
    ("something before", b"x" + GOOD),
    ("something after", GOOD + PART + b"secret-model\r\n--limit--\r\n"),
    ("bare line ends", GOOD.replace(b"\r\n", b"\n")),
    ("a longer boundary", GOOD.replace(b"--limit\r\n", b"--limit2\r\n", 1)),
    ("a folded header", GOOD.replace(b"form-data; ", b"form-data;\r\n ", 1)),
    ("two names", GOOD.replace(b'name="model"', b'name="x"; name="model"')),
    ("another name beside", GOOD.replace(b'name="model"', b"name=\"x\"; name*=utf-8''model")),
    ("an escaped name", GOOD.replace(b'name="model"', b'name="mo\\del"')),
    ("two dispositions", GOOD.replace(PART, PART[:-2] + PART[9:])),
    ("no disposition", GOOD.replace(b"Content-Disposition", b"Content-Type", 1)),
    ("an encoded name", GOOD.replace(PART, PART[:-2] + b"Content-Transfer-Encoding: base64\r\n\r\n")),
    ("a charset", GOOD.replace(PART, PART[:-2] + b"Content-Type: text/plain; charset=utf-16\r\n\r\n")),
    ("empty", b""),
]


@pytest.mark.parametrize("body", [row[1] for row in AMBIGUOUS], ids=[row[0] for row in AMBIGUOUS])
def test_forms_that_might_be_read_in_two_ways(relaying: Proxy, upstream: FakeUpstream, body: bytes) -> None:
    status, code, place = call(relaying, "audio/transcriptions", body, **TYPE).error
    assert (status, code) == (400, "invalid_request_error")
    assert place in ("body", "model")
    assert upstream.received == []


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=a; boundary=limit"])
def test_forms_without_one_boundary(relaying: Proxy, upstream: FakeUpstream, kind: str) -> None:
    got = call(relaying, "audio/transcriptions", GOOD, content_type=kind)
    assert got.error == (400, "invalid_request_error", "body")


def test_bounds(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(limits={"body_bytes": 1000}, **sections(upstream.url))
    assert call(proxy, "embeddings", EMBED | {"input": "x" * 1000}).error[:2] == (413, "body_too_large")
    assert call(proxy, "embeddings", b"\x1f\x8b", content_encoding="gzip").error[:2] == (415, "unsupported_encoding")
    proxy.reconfigure(limits={"in_flight": 1})
    hold = Gate()
    upstream.at("embeddings", Answer([b"{}"], before=hold))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, proxy, "embeddings")
        until(lambda: upstream.received)
        assert call(proxy, "embeddings").error[:2] == (503, "overloaded")
        hold.open()
        assert waiting.result().status == 200


# ---------------------------------------------------------------------- what goes wrong
@pytest.mark.parametrize("status", [400, 403, 404, 422, 429, 500, 503])
def test_errors_pass_without_our_key(relaying: Proxy, upstream: FakeUpstream, status: int) -> None:
    headers = JSON | {"retry-after": "7"}
    upstream.at("embeddings", Answer([b'{"error": {"message": "Not with %b"}}' % SECRET.encode()], status, headers))
    got = call(relaying, "embeddings")
    assert (got.status, got.headers["retry-after"]) == (status, "7")
    assert got.json["error"]["message"] == "Not with [redacted]"


def test_a_refused_key_of_ours_is_the_operators_matter(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("embeddings", Answer([b'{"error": {"message": "Bad key"}}'], 401))
    assert call(relaying, "embeddings").error == (502, "upstream_auth", None)


@pytest.mark.parametrize(
    "answer",
    [
        Answer([]),
        Answer([], headers=STREAM),
        Answer([b"<html>"], headers={"content-type": "text/html"}),
        Answer([b'{"data":', Abort()]),
        Answer([Abort()], headers={"content-type": "audio/mpeg"}),
        Answer([b""], 302, {"location": "http://127.0.0.1:1/"}),
    ],
    ids=["empty", "empty stream", "html", "json that breaks", "sound that breaks at once", "redirect"],
)
def test_what_is_no_answer_is_an_error(relaying: Proxy, upstream: FakeUpstream, answer: Answer) -> None:
    upstream.at("embeddings", answer)
    got = call(relaying, "embeddings")
    assert got.error == (502, "upstream_bad_response", None)
    assert got.window == ["bypassed"]


def test_an_answer_that_breaks_is_never_whole(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("audio/speech", Answer([b"\xff" * 1000, Abort()], headers={"content-type": "audio/mpeg"}))
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        call(relaying, "audio/speech")


def test_a_stream_that_breaks_ends_in_an_error_event(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("completions", Answer([b'data: {"a":1}\n\ndata: {"to', Abort()], headers=STREAM))
    got = call(relaying, "completions")
    first, last = got.events
    assert first == b'data: {"a":1}\n\n'
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_bad_response"


def test_an_error_within_an_answer_does_not_show_our_key(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("embeddings", Answer([b'{"error":{"message":"%b"}}' % SECRET.encode()]))
    assert call(relaying, "embeddings").body == b'{"error":{"message":"[redacted]"}}'


def test_an_error_event_does_not_show_our_key(relaying: Proxy, upstream: FakeUpstream) -> None:
    upstream.at("completions", Answer([b'data: {"error":{"message":"%b"}}\n\n' % SECRET.encode()], headers=STREAM))
    assert call(relaying, "completions").body == b'data: {"error":{"message":"[redacted]"}}\n\n'


@pytest.mark.parametrize("begun", [False, True])
def test_an_upstream_that_hangs(serve: Serve, upstream: FakeUpstream, begun: bool) -> None:
    proxy = serve(limits={"first_byte_s": 60 if begun else 0.4, "idle_stream_s": 0.4}, **sections(upstream.url))
    never = Gate()
    parts = [b"data: {}\n\n", never] if begun else []
    upstream.at("completions", Answer(parts, headers=STREAM, before=None if begun else never))
    got = call(proxy, "completions")
    assert b'"upstream_timeout"' in got.body
    assert got.status == (200 if begun else 504)
    never.open()


SPEECH = b"""POST /v1/audio/speech HTTP/1.1\r
Host: localhost\r
Authorization: Bearer key-of-acme\r
Content-Length: 17\r
\r
{"model":"plain"}"""


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_ends_the_call(relaying: Proxy, upstream: FakeUpstream, begun: bool) -> None:
    never = Gate()
    kind = {"content-type": "audio/mpeg"}
    upstream.at("audio/speech", Answer([b"x", never], headers=kind, before=None if begun else never))
    with closing(socket.create_connection(("127.0.0.1", relaying.port), timeout=60)) as connection:
        connection.sendall(SPEECH)
        until(lambda: upstream.received)
        if begun:
            assert connection.recv(12) == b"HTTP/1.1 200"
    until(upstream.received[0].gone.is_set)
    assert relaying.transom is not None
    in_flight = relaying.transom._in_flight
    until(lambda: (in_flight.requests, in_flight.bytes) == (0, 0))


def test_a_client_that_does_not_read_holds_the_upstream_back(relaying: Proxy, upstream: FakeUpstream) -> None:
    taken = [0]

    def pieces() -> Iterator[bytes]:
        for _ in range(300):
            taken[0] += 1
            yield b"x" * 1_000_000

    def stands_still() -> bool:
        before = taken[0]
        time.sleep(0.3)
        return 0 < before == taken[0]

    upstream.at("audio/speech", Answer(pieces(), headers={"content-type": "audio/mpeg"}))
    with closing(socket.create_connection(("127.0.0.1", relaying.port), timeout=60)) as connection:
        connection.sendall(SPEECH)
        until(stands_still)
        assert taken[0] < 100  # what lies in the sockets' own buffers
    until(upstream.received[0].gone.is_set)


def test_a_server_that_ends_says_so(serve: Serve, upstream: FakeUpstream) -> None:
    proxy = serve(server={"drain_s": 0.2}, **sections(upstream.url))
    never = Gate()
    upstream.at("completions", Answer([b"data: {}\n\n", never], headers=STREAM))
    with requesting(proxy.port, "/v1/completions", {"model": "plain"}, key("acme")) as begun:
        first = begun.readline()
        proxy.close()
        got = answer_of(begun, first)
    assert got.events[-1].startswith(b'data: {"error":')
    assert b"shutting_down" in got.body
    never.open()


# ---------------------------------------------------------------------- what is counted and said
def test_metrics_and_log(relaying: Proxy, upstream: FakeUpstream, capsys: pytest.CaptureFixture[str]) -> None:
    usage = b'{"data":["canary-down"],"usage":{"prompt_tokens":7,"total_tokens":7}}'
    upstream.at("embeddings", Answer([usage]))
    counted = 'transom_requests_total{endpoint="embeddings",model="embed",status="200",tenant="acme"}'
    tokens = 'transom_upstream_tokens_total{kind="prompt",model="embed",tenant="acme"}'
    before = relaying.metric(counted), relaying.metric(tokens)
    assert call(relaying, "embeddings?q=canary-query", EMBED | {"input": "canary-up"}).status == 200
    until(lambda: relaying.metric(counted) == before[0] + 1)
    assert relaying.metric(tokens) == before[1] + 7
    images = 'transom_requests_total{endpoint="images",model="plain",status="200",tenant="acme"}'
    before = relaying.metric(images), 0
    assert call(relaying, "images/canary", {"model": "plain"}).status == 200
    until(lambda: relaying.metric(images) == before[0] + 1)
    assert call(relaying, "files/canary", {"model": "plain"}).status == 403
    assert relaying.metric('transom_requests_total{endpoint="other",model="other",status="403",tenant="acme"}') >= 1
    assert "canary" not in relaying.get("/metrics").body.decode()
    assert "canary" not in capsys.readouterr().out


def test_nothing_is_stored(relaying: Proxy, upstream: FakeUpstream) -> None:
    before = [relaying.sql(f"SELECT count(*) FROM {table}")[0][0] for table in ("sessions", "requests", "messages")]
    assert call(relaying, "embeddings", x_session_id="relayed").status == 200
    after = [relaying.sql(f"SELECT count(*) FROM {table}")[0][0] for table in ("sessions", "requests", "messages")]
    assert before == after
