"""The proxy as its clients see it: a server of the real kind on a free loopback port, and what its database holds."""

import asyncio
import http.client
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvloop

from transom.proxy.app import Transom
from transom.proxy.config.load import from_mapping
from transom.proxy.config.watch import LiveSettings
from transom.proxy.connection import Bounds
from transom.proxy.drain import Drain
from transom.proxy.process import Listen, Server, configure
from transom.storage import identity

SECRET = "sk-upstream-0123456789abcdef"  # the configured key, which nobody may see
CHAT = "/v1/chat/completions"
PATIENT = {"timeout_s": 60, "commit_wait_s": 60}  # of the storage, so that a busy machine changes nothing

Json = dict[str, Any]


@dataclass(frozen=True)
class Got:
    """One answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return dict(json.loads(self.body))

    @property
    def error(self) -> tuple[int, str, str | None]:
        """Status, code and param of an error of ours."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["type"]
        return self.status, error["code"], error["param"]

    @property
    def message(self) -> Json:
        return dict(self.json["choices"][0]["message"])

    @property
    def events(self) -> list[bytes]:
        """The events of a stream, comments among them."""
        return [block + b"\n\n" for block in self.body.split(b"\n\n") if block]

    @property
    def window(self) -> list[str]:
        return self.headers["x-transom-window"].split(",")

    @property
    def tokens(self) -> dict[str, int]:
        """The figures of X-Transom-Tokens."""
        pairs = (part.split("=") for part in self.headers["x-transom-tokens"].split(";"))
        return {name: int(value or 0) for name, value in pairs}


def request(
    port: int,
    path: str = CHAT,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Got:
    """Make one request on a connection of its own."""
    with requesting(port, path, body, headers, method) as response:
        return answer_of(response)


def answer_of(response: http.client.HTTPResponse, begun: bytes = b"") -> Got:
    """Read an answer to its end, of which some may have been read."""
    return Got(response.status, {k.lower(): v for k, v in response.getheaders()}, begun + response.read())


@contextmanager
def requesting(
    port: int,
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    method: str | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """Make one request on a connection of its own; its answer has begun and can be read while it comes."""
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, sent, dict(headers or {}))
        with connection.getresponse() as response:
            yield response
    finally:
        connection.close()


def key(tenant: str) -> dict[str, str]:
    """Return the header by which a tenant of `config` is known."""
    return {"authorization": f"Bearer key-of-{tenant}"}


def config(
    upstream_url: str,
    policies: Mapping[str, Mapping[str, Any]],
    *,
    database: str,
    info: Mapping[str, Mapping[str, Any]] | None = None,
    **sections: Any,
) -> Json:
    """Return a configuration with one model for each policy, of the policy's name, for the tenants acme and beta."""
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": upstream_url, "api_key": SECRET},
            "model_info": dict((info or {}).get(name, {})),
        }
        for name in policies
    ]
    hashed = {name: "sha256:" + sha256(f"key-of-{name}".encode()).hexdigest() for name in ("acme", "beta")}
    tenants = {name: {"keys": [digest], "models": {p: p for p in policies}} for name, digest in hashed.items()}
    storage = {"url": database} | PATIENT | sections.pop("storage", {})
    return {
        "model_list": models,
        "policies": {name: dict(policy) for name, policy in policies.items()},
        "tenants": {name: tenant | {"policy": next(iter(policies))} for name, tenant in tenants.items()},
        "storage": storage,
    } | sections


@dataclass(frozen=True)
class Rows:
    """What a SQLite database holds of one session."""

    messages: list[sqlite3.Row]
    preambles: list[sqlite3.Row]
    requests: list[sqlite3.Row]
    steps: list[sqlite3.Row]
    baselines: list[sqlite3.Row]
    summaries: list[sqlite3.Row]


class Proxy:
    """One running proxy in this process, in a thread with its own loop."""

    def __init__(self, mapping: Json) -> None:
        self._mapping = mapping
        self.live = LiveSettings(lambda: from_mapping(self._mapping))
        self.transom: Transom | None = None
        self.admin_port = 0
        self.port = 0
        self._server: Server | None = None
        self._failure: BaseException | None = None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)
        if self._failure is not None:
            raise self._failure

    def post(self, body: bytes | Mapping[str, Any], *, tenant: str | None = "acme", **headers: str) -> Got:
        """Ask for a completion; underscores in the names of headers are dashes."""
        with self.asking(body, tenant=tenant, **headers) as response:
            return answer_of(response)

    @contextmanager
    def asking(
        self, body: bytes | Mapping[str, Any], *, tenant: str | None = "acme", **headers: str
    ) -> Iterator[http.client.HTTPResponse]:
        """Do as `post`, but hand out the answer as soon as it has begun."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with requesting(self.port, CHAT, body, (key(tenant) if tenant else {}) | named) as response:
            yield response

    @property
    def under_way(self) -> int:
        """How many requests are neither answered nor given up."""
        assert self.transom is not None
        return self.transom._in_flight.requests

    def get(self, path: str, *, method: str = "GET", port: int | None = None, **headers: str) -> Got:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(port or self.port, path, None, named, method)

    def metric(self, start: str) -> float:
        """Return the sum of the samples whose line begins so."""
        lines = self.get("/metrics", port=self.admin_port or None).body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))

    @property
    def database(self) -> Path:
        return Path(self._mapping["storage"]["url"].partition(":///")[2])

    @property
    def secret(self) -> bytes:
        assert self.transom is not None
        return self.transom.store.secret

    def session_id(self, name: str, tenant: str = "acme", bearer: str | None = None) -> bytes:
        """Return the id of the session a client names so."""
        return identity.session_id(self.secret, tenant, "key", bearer, name)

    def rows(self, session: bytes | str) -> Rows:
        """Return what is stored of a session, given by its id or acme's name for it."""
        wanted = self.session_id(session) if isinstance(session, str) else session

        def table(name: str) -> list[sqlite3.Row]:
            statement = f"SELECT * FROM {name} WHERE session = (SELECT seq FROM sessions WHERE id = ?)"
            return self.sql(statement + ("" if name == "steps" else " ORDER BY seq"), wanted.hex())

        names = ("messages", "preambles", "requests", "steps", "baselines", "summaries")
        return Rows(*(table(name) for name in names))

    def sql(self, statement: str, *parameters: Any) -> list[sqlite3.Row]:
        """Run a statement on the database file beside the proxy."""
        with closing(sqlite3.connect(self.database, timeout=60)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(statement, parameters).fetchall()

    def reconfigure(self, **sections: Any) -> None:
        """Change top-level sections of the configuration and reload."""
        self._mapping = self._mapping | sections
        assert self.live.reload()

    def close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self, ready: threading.Event) -> None:
        try:
            drain = Drain()
            self.transom = Transom(self.live, drain)
            limits = self.live.current.config.limits
            bounds = Bounds(limits.header_s, limits.body_s, limits.idle_s)
            admin = self.transom.admin_app
            listen = Listen("127.0.0.1", 0, bounds, None if admin is None else 0)
            listen.open()
            self.port, self.admin_port = ([s.getsockname()[1] for s in listen.sockets] + [0])[:2]
            site = configure(self.transom.app, bounds, lifespan=True)
            operations = configure(admin, bounds, lifespan=False) if admin is not None else None
            drain_s = self.live.current.config.server.drain_s
            self._server = Server(site, drain, drain_s, operations, supervised=False)
        except BaseException as failure:  # noqa: BLE001  (handed to the test's own thread)
            self._failure = failure
            ready.set()
            return
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(self._server, listen, ready))

    @staticmethod
    async def _serve(server: Server, listen: Listen, ready: threading.Event) -> None:
        async def tell() -> None:
            while not server.started:
                await asyncio.sleep(0.005)
            ready.set()

        await asyncio.gather(server.serve(sockets=listen.sockets), tell())


@contextmanager
def serving(mapping: Json) -> Iterator[Proxy]:
    """Run a proxy for as long as the block takes."""
    proxy = Proxy(mapping)
    try:
        yield proxy
    finally:
        proxy.close()


def user(text: str) -> Json:
    """Return a user message."""
    return {"role": "user", "content": text}


def assistant(text: str | None, calls: Sequence[Json] = ()) -> Json:
    """Return an assistant message."""
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})


def result(call_id: str, text: str = "found") -> Json:
    """Return a tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def long_text(subject: str, tokens: int) -> str:
    """Return a text of about so many tokens, of its own from its first word on."""
    return f"{subject}: " + "water and stone and " * (tokens // 4)


class Talk:
    """One conversation of a client that resends everything with each request."""

    def __init__(self, proxy: Proxy, model: str, session: str | None = None, *, tenant: str = "acme") -> None:
        self._proxy, self.model, self._tenant = proxy, model, tenant
        self._headers = {} if session is None else {"x_session_id": session}
        self.messages: list[Json] = []
        self.more: Json = {}

    def send(self, **headers: str) -> Got:
        """Send what there is, and leave it so."""
        body = {"model": self.model, "messages": self.messages, **self.more}
        return self._proxy.post(body, tenant=self._tenant, **self._headers, **headers)

    def say(self, text: str, **headers: str) -> Got:
        """Add a user message, send all, and add the answer, if it is one."""
        self.messages.append(user(text))
        got = self.send(**headers)
        if got.status == 200:
            self.messages.append(got.message)
        return got

    def until(self, window: str, tokens: int = 150, most: int = 40) -> Got:
        """Go on talking until an answer says that this was done to its request."""
        for turn in range(most):
            got = self.say(long_text(f"Turn {len(self.messages)} number {turn}", tokens))
            assert got.status == 200, got.body
            if window in got.window:
                return got
        raise AssertionError(f"{most} turns, and none was {window}")
