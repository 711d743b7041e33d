"""Second chances for labels that a database refuses: half an emoji anywhere, NUL on PostgreSQL; content is bytes."""

from dataclasses import fields, replace
from typing import Any

from transom.storage.rows import Batch, SummaryRow


def scrubbed(batch: Batch) -> Batch:
    """Return the batch with U+FFFD for what no text column takes; content is not in text columns and stays."""
    return Batch(**{column.name: [_row(row) for row in getattr(batch, column.name)] for column in fields(batch)})


def _row(row: Any) -> Any:
    """Return a row with clean labels."""
    kept = ("text", "constraints", "ledger") if isinstance(row, SummaryRow) else ()
    labels = {
        column.name: label(getattr(row, column.name))
        for column in fields(row)
        if column.name not in kept and isinstance(getattr(row, column.name), str)
    }
    return replace(row, **labels)


def label(text: str) -> str:
    """Return text that every database stores."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")
