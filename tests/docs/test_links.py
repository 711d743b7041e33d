"""Every link of a document leads to a file that is there, and to a heading in it."""

import re
from pathlib import Path

import pytest

from tests.docs.running import ROOT
from transom.proxy.config.load import from_text

DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
POLICIES = ROOT / "docs" / "policies.md"


def anchors(document: Path) -> set[str]:
    """Return the names that headings can be linked by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in LINK.findall(CODE.sub("", document.read_text("utf-8"))):
        name, _, anchor = link.partition("#")
        if ":" in name:
            continue
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_document_is_linked_from_the_readme() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text("utf-8")))
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= {link.partition("#")[0] for link in linked}


def test_the_policies_to_choose_from_can_be_chosen() -> None:
    text = POLICIES.read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert set(from_text(block, "policies.md").policies) == {"default", "agent", "trial"}
    for preset, strategy in re.findall(r"`(\w+)` with `(strategy: [^`]*)`", text):
        from_text(f"policies: {{default: {{preset: {preset}, {strategy}}}}}", "policies.md")
