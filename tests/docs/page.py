"""A document whose blocks are a program and what it prints."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = re.compile(r"^(?:pip|npm) install (.*)$", re.MULTILINE)
ADDRESS = "127.0.0.1:8000"  # where the pages' proxy listens
ANYTHING = "…"  # in what is printed


@dataclass(frozen=True)
class Page:
    """One document: its blocks `sh`, `python`, `js`, … in order; those without a name are the output."""

    path: Path

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    def blocks(self, language: str, address: str = ADDRESS) -> list[str]:
        """Return the blocks of a language, for a proxy that listens there."""
        return [body.replace(ADDRESS, address) for name, body in BLOCK.findall(self.text) if name == language]

    @property
    def packages(self) -> list[str]:
        """What it tells to install, without versions and extras."""
        wanted = [word for line in INSTALL.findall(self.text) for word in shlex.split(line, comments=True)]
        return [re.split(r"(?<=.)@|\[|==", word)[0] for word in wanted]

    @property
    def is_node(self) -> bool:
        return "npm install" in self.text

    def prints(self, output: str) -> bool:
        """Tell whether this is what the page says is printed."""
        said = map(re.escape, "".join(self.blocks("")).split(ANYTHING))
        return re.fullmatch(".*?".join(said), output, re.DOTALL) is not None
