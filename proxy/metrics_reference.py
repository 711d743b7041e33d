"""Writes the table of every metric into docs/operations.md; run as a module, with the document as argument.

It reads the definitions only; the text around the table is written by hand.
"""

import sys
from pathlib import Path

from transom.proxy.metrics import Metrics

BEGIN, END = "<!-- metrics: made from the code -->", "<!-- /metrics -->"


def metric_table() -> str:
    """Return a Markdown table of every metric: its name, type, labels and meaning."""
    metrics = Metrics()
    families = {family.name: family for family in metrics.registry.collect()}
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for name, labels in metrics.labels.items():
        family = families[name.removesuffix("_total")]
        listed = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {family.type} | {listed} | {family.documentation} |")
    return "\n".join(lines)


def fill(text: str) -> str:
    """Return the document with the table made anew between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{metric_table()}\n{END}{after}"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        document = Path(argument)
        document.write_text(fill(document.read_text("utf-8")), "utf-8")
