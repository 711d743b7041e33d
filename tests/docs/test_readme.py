"""The quick start of README.md works as it stands there."""

import sys
from pathlib import Path

from tests.docs.page import Page
from tests.docs.running import ROOT, shell, transom
from transom.proxy.config.load import from_text

PAGE = Page(ROOT / "README.md")


def test_a_client_is_answered(tmp_path: Path) -> None:
    with transom(tmp_path) as proxy:
        (tmp_path / "page.py").write_text("".join(PAGE.blocks("python", proxy.address)), "utf-8")
        done = shell(f"{sys.executable} page.py", tmp_path)
        [session] = proxy.admin("sessions?key=chat-1")["sessions"]
    assert done.returncode == 0, done.stderr
    assert "Hello" in done.stdout
    assert session["messages"] == 2


def test_the_configuration_is_one() -> None:
    (text,) = PAGE.blocks("yaml")
    config = from_text(text, "README.md", environment={"OPENAI_API_KEY": "sk-x"})
    assert config.policies["default"].max_tokens == 8000
