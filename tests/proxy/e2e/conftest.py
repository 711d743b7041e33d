"""What the end-to-end tests share: one fake upstream and one proxy for most of them."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from tests.proxy.e2e.fake_upstream import FakeUpstream
from tests.proxy.e2e.served import Proxy, config, serving

POSTGRES = "TRANSOM_TEST_POSTGRES"

POLICIES: dict[str, dict[str, Any]] = {
    "plain": {"preset": "chat"},
    "off": {"strategy": "none"},
    "fill": {"strategy": "context_window", "max_tokens": 1200, "keep_verbatim": "fill", "compact_at": None},
    "turns": {"strategy": "context_window", "max_tokens": 1500, "keep_recent_turns": 2, "compact_at": None},
    "cut": {"strategy": "truncate", "max_tokens": 1200},
}


@pytest.fixture(scope="session")
def running_upstream() -> Iterator[FakeUpstream]:
    """Run the fake upstream."""
    upstream = FakeUpstream()
    yield upstream
    upstream.close()


@pytest.fixture
def upstream(running_upstream: FakeUpstream) -> Iterator[FakeUpstream]:
    """Hand out the fake upstream without scripts; afterwards nothing may have come that a provider would refuse."""
    running_upstream.clear()
    yield running_upstream
    assert running_upstream.refusals == []
    running_upstream.clear()


@pytest.fixture(scope="session")
def proxy(running_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Run a proxy with ordinary policies for all tests that need no other."""
    folder = tmp_path_factory.mktemp("proxy")
    with serving(config(running_upstream.url, POLICIES, database=sqlite(folder))) as proxy:
        yield proxy


Serve = Callable[..., Proxy]


@pytest.fixture
def serve(upstream: FakeUpstream, tmp_path: Path) -> Iterator[Serve]:
    """Run proxies of a test's own, one after the other on the same file: `serve(policies, **sections)`."""
    with ExitStack() as stack:

        def start(policies: dict[str, Any] | None = None, **sections: Any) -> Proxy:
            database = sections.pop("database", sqlite(tmp_path))
            mapping = config(upstream.url, policies or POLICIES, database=database, **sections)
            return stack.enter_context(serving(mapping))

        yield start


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name an empty database of either kind."""
    if request.param == "sqlite":
        yield sqlite(tmp_path_factory.mktemp("database"))
        return
    configured = os.environ.get(POSTGRES)
    if not configured:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{POSTGRES} is not set: in CI both databases are tested")
        pytest.skip(f"{POSTGRES} is not set")
    schema = f"e2e_{uuid4().hex}"
    server = make_url(configured).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        named = make_url(configured).update_query_dict({"options": f"-csearch_path={schema}"})
        yield named.render_as_string(hide_password=False)
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def sqlite(folder: Path) -> str:
    """Name a database file in a folder."""
    return f"sqlite+aiosqlite:///{folder}/transom.db"
