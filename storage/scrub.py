"""Second chances for labels that a database refuses: half an emoji anywhere, NUL on PostgreSQL; content is bytes."""

from dataclasses import fields
from typing import Any

from msgspec.structs import replace

from transom.storage.rows import Batch, SummaryRow


def scrubbed(batch: Batch) -> Batch:
    """Return the batch with U+FFFD for what no text column takes; content is not in text columns and stays."""
    return Batch(**{column.name: [_row(row) for row in getattr(batch, column.name)] for column in fields(batch)})


def _row(row: Any) -> Any:
    """Return a row with clean labels."""
    kept = ("text", "constraints", "ledger") if isinstance(row, SummaryRow) else ()
    labels = {
        name: label(getattr(row, name))
        for name in row.__struct_fields__
        if name not in kept and isinstance(getattr(row, name), str)
    }
    return replace(row, **labels)


def label(text: str) -> str:
    """Return text that every database stores."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\x00", "\ufffd")
