"""Objects of the account under every other spelling of their paths: another tenant's are reached by none."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import pytest

from tests.proxy.e2e.conftest import POLICIES, sqlite
from tests.proxy.e2e.fake_upstream import FakeUpstream
from tests.proxy.e2e.served import Proxy, config, key, serving
from tests.proxy.e2e.test_relayed import STATELESS, entry

OBJECTS = [
    "files",
    "files/file-1/content",
    "batches/batch_1",
    "chat/completions/chatcmpl-1",
    "responses/resp_1",
    "vector_stores/vs_1/files/file-1",
    "audio/voices",
    "audio/voice_consents/cons_1",
]
METHODS = ["GET", "POST", "DELETE"]
ODD_METHODS = ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "Delete", "PROPFIND", "MOVE", "QUERY", "X-GET"]
# What a server or a framework behind it may obey instead of the request line.
OVERRIDES = {
    "x-http-method-override": "DELETE",
    "x-http-method": "GET",
    "x-method-override": "GET",
    "x-original-url": "/v1/files",
    "x-rewrite-url": "/v1/files",
    "x-forwarded-prefix": "/v1/files",
    "x-forwarded-uri": "/v1/files",
    "x-accel-redirect": "/v1/files",
    "destination": "/v1/files/file-1",
}


def spellings(path: str) -> Iterator[str]:
    """Yield targets that some server takes for `/v1/` and this path."""
    first, slash, rest = path.partition("/")
    after = slash + rest
    yield from (
        f"/v1/{first}{slash}{case}" for case in (rest.upper(), rest.capitalize(), rest.swapcase(), rest.title())
    )
    yield from (f"/v1/{case}" for case in (path.upper(), path.title(), path.swapcase(), path.capitalize()))
    yield from (f"/V1/{path}", f"/v1/v1/{path}", f"/v1//{path}", f"//v1/{path}", f"/v1///{path}", f"/{path}")
    yield from (f"/v1/./{path}", f"/v1/.//{path}", f"/v1/../v1/{path}", f"/./v1/{path}", f"/x/../v1/{path}")
    yield from ("/v1/" + path.replace("/", slash) for slash in ("//", "%2f", "%2F", "%252f", "%5c", "\\", "/./"))
    yield from ("/v1/" + path + end for end in ("/", "//", "/.", "/..", ".", "%2f", "%00", "%20", "%09", "%0d%0a", ";"))
    yield from (
        "/v1/" + path + end for end in (";a=b", "?", "??", "?model=plain", "%3f", "#", "%23x", ".json", "~", ":")
    )
    yield "/v1/" + "".join(f"%{ord(c):02x}" if c != "/" else c for c in path)
    yield "/v1/" + "".join(f"%25{ord(c):02X}" if c != "/" else c for c in path)
    yield f"/v1/%{ord(first[0]):02x}{first[1:]}{after}"
    yield f"/%76%31/{path}"
    yield f"/v1%2f{path}"
    for lent in ("embeddings", "images/edits", "audio/speech"):
        ups = "/.." * (lent.count("/") + 1)
        yield f"/v1/{lent}{ups}/{path}"
        for dots in (
            "%2e%2e",
            "%2E.",
            ".%2e",
            "%252e%252e",
            "..;",
            "..%00",
            "%c0%ae%c0%ae",
            "%e3%80%82%e3%80%82",
            "...",
        ):
            yield f"/v1/{lent}{ups.replace('..', dots)}/{path}"
        yield f"/v1/{lent}{ups.replace('/', '%2f')}%2f{path}"
        yield f"/v1/{lent}{ups.replace('/', chr(92))}{chr(92)}{path}"
        yield f"/v1/{lent}/{path}"
        yield f"/v1/{lent}%2f{path}"
        yield f"/v1/{lent};/{path}"
        yield f"/v1/{lent}%3f/../{path}"
        yield f"/v1/{lent}%0a/{path}"
        yield f"/v1/{lent}%20HTTP/1.1%0d%0aGET%20/v1/{path}"
    yield "/v1/" + quote(path.replace("/", "\uff0f"))
    yield "/v1/" + quote(path.translate({ord("s"): "\u017f", ord("i"): "\u0131"}))
    yield f"http://127.0.0.1/v1/{path}"
    yield f"http://127.0.0.1:1/v1/embeddings/../{path}"
    yield f"http://x@127.0.0.1/v1/{path}"


@pytest.fixture(scope="module")
def lending(running_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Run a proxy for two tenants that share one account."""
    models = [entry("plain", "openai/plain", running_upstream.url), entry("*", "openai/*", running_upstream.url)]
    database = sqlite(tmp_path_factory.mktemp("lending"))
    with serving(config(running_upstream.url, POLICIES, database=database, model_list=models)) as proxy:
        yield proxy


def attempt(connection: http.client.HTTPConnection, method: str, target: str, headers: dict[str, str]) -> int:
    """Send a request as it is written, whatever a client would make of it."""
    body = b"" if method == "HEAD" else b'{"model":"plain","input":"x"}'
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in (headers | {"content-length": str(len(body)), "content-type": "application/json"}).items():
            connection.putheader(name, value)
        connection.endheaders(body)
        with connection.getresponse() as response:
            response.read()
            return response.status
    except (http.client.HTTPException, ConnectionError):
        connection.close()
        return 0


@pytest.mark.parametrize("path", OBJECTS)
def test_no_spelling_reaches_them(lending: Proxy, upstream: FakeUpstream, path: str) -> None:
    targets = sorted(set(spellings(path)))
    assert len(targets) > 80
    calls = [(method, target) for target in targets for method in METHODS]
    calls += [(method, f"/v1/{path}") for method in ODD_METHODS]
    with closing(http.client.HTTPConnection("127.0.0.1", lending.port, timeout=60)) as connection:
        for place, (method, target) in enumerate(calls):
            status = attempt(connection, method, target, key("acme" if place % 2 else "beta"))
            assert status in (0, 400, 403, 404, 405), (method, target, status)
    assert [(received.method, received.path) for received in upstream.received] == []


@pytest.mark.parametrize("lent", STATELESS)
def test_what_is_lent_is_what_is_called(lending: Proxy, upstream: FakeUpstream, lent: str) -> None:
    """Neither headers nor the query turn a call that may be made into another one."""
    queries = [
        "",
        "?_method=DELETE",
        "?path=/v1/files",
        "?/../files",
        "?x=%0d%0aGET%20/v1/files",
        "?#/../files",
        "?;/../",
    ]
    with closing(http.client.HTTPConnection("127.0.0.1", lending.port, timeout=60)) as connection:
        for query in queries:
            assert attempt(connection, "POST", f"/v1/{lent}{query}", key("acme") | OVERRIDES) in (200, 400)
        assert attempt(connection, "GET", f"/v1/{lent}", key("acme") | OVERRIDES) == 405
    assert upstream.received
    for received in upstream.received:
        assert (received.method, received.path) == ("POST", f"/v1/{lent}")
        assert not OVERRIDES.keys() & received.headers.keys()
