"""docs/admin.md describes the routes there are, and README leads to every document."""

import re
from pathlib import Path
from typing import cast

from starlette.routing import Match, Route

from transom.proxy.admin.api import Admin
from transom.storage.store import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "admin.md").read_text("utf-8")


def routes() -> list[Route]:
    return Admin(cast(Store, None), lambda: None, lambda _: None).routes()  # type: ignore[arg-type,return-value]


def methods(route: Route) -> set[str]:
    return (route.methods or set()) - {"HEAD"}


def test_every_route_is_described_and_no_other() -> None:
    there = {(method, route.path.replace(":path", "")) for route in routes() for method in methods(route)}
    assert set(re.findall(r"`(GET|DELETE) (/admin/[a-z/{}]+)", PAGE)) == there


def test_every_route_has_an_example() -> None:
    calls = re.findall(r"^curl (?:-X (\w+) )?'?http://127\.0\.0\.1:8000([^\s'?]+)", PAGE, re.MULTILINE)
    for route in routes():
        for wanted in methods(route):
            scopes = ({"type": "http", "method": method or "GET", "path": path} for method, path in calls)
            assert any(route.matches(scope)[0] is Match.FULL for scope in scopes if scope["method"] == wanted), route


def test_every_parameter_that_is_read_is_described() -> None:
    source = (ROOT / "proxy" / "admin" / "api.py").read_text("utf-8")
    read = set(re.findall(r'query(?:_params)?\.get\("(\w+)"', source))
    assert read == {"tenant", "key", "limit", "after"}
    assert all(f"| `{name}` |" in PAGE for name in read)


def test_readme_leads_to_every_document() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(docs/([a-z-]+\.md)\)", readme))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")}
