"""docs/headers.md names every header and every word that the code can say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from transom.policies.tool_limit import Reason
from transom.proxy.config.schema import SESSION_HEADERS, Session
from transom.proxy.endpoints.relayed import BYPASSED
from transom.proxy.modes import Mode
from transom.proxy.windowing import LABELS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "headers.md").read_text("utf-8")


def texts(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def is_labels(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "labels"


def written(tree: ast.AST) -> Iterator[str]:
    """Yield the words that a module puts into labels: appended, assigned, or given to what makes a decision."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(is_labels(target) for target in node.targets):
            lists = [n for n in ast.walk(node.value) if isinstance(n, ast.List)]
            yield from (e.value for found in lists for e in found.elts if isinstance(e, ast.Constant))
        elif isinstance(node, ast.Call):
            appends = isinstance(node.func, ast.Attribute) and node.func.attr == "append" and is_labels(node.func.value)
            decides = isinstance(node.func, ast.Name) and node.func.id == "Decision"
            given = node.args if appends or decides else [k.value for k in node.keywords if k.arg == "label"]
            yield from (word for value in given for word in texts(value))


def words() -> set[str]:
    files = ("windowing", "preparation", "delivery")
    found = {word for name in files for word in written(ast.parse((ROOT / "proxy" / f"{name}.py").read_text("utf-8")))}
    modes = {mode for mode in get_args(Mode) if mode not in ("on", "off")}
    return found | set(LABELS.values()) | modes | {value.decode() for _, value in BYPASSED}


def table(heading: str) -> list[str]:
    section = re.split(r"^#+ ", PAGE.split(f"\n### {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)


def test_the_page_explains_every_word_of_the_window_header_and_no_other() -> None:
    assert {"fits", "replayed", "cut", "clipped", "over-budget", "none", "upstream-truncated"} <= words()
    assert sorted(table("X-Transom-Window")) == sorted(words())


def test_the_page_explains_the_four_figures() -> None:
    assert table("X-Transom-Tokens") == ["before", "sent", "limit", "stable"]


def test_the_page_names_every_cap() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `X-Transom-Tool-Limit`"))
    assert all(f"`{reason}`" in row for reason in get_args(Reason))


def test_the_page_names_every_header_of_the_code() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "proxy").glob("*.py"))
    own = set(re.findall(r'b"(x-transom-[a-z-]+)"', code))
    assert len(own) >= 7
    named = {name.lower() for name in re.findall(r"`([A-Za-z-]+)[`:]", PAGE)}
    assert own | {name.lower() for name in (*SESSION_HEADERS, *Session().user_headers)} <= named
