"""The column type of ids and hashes: bytes to the program, lower-case hex in the database, readable with any client."""

from typing import Any

from sqlalchemy import Text
from sqlalchemy.types import TypeDecorator


class Hex(TypeDecorator[bytes]):
    """Keeps bytes as hex text: whoever looks into the database sees the ids that the admin API shows."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Any) -> str | None:
        """Return what the column holds."""
        return None if value is None else value.hex()

    def process_result_value(self, value: str | None, dialect: Any) -> bytes | None:
        """Return what the program works with."""
        return as_bytes(value)


def as_bytes(value: str | None) -> bytes | None:
    """Return the bytes of a cell that a plain cursor gave."""
    return None if value is None else bytes.fromhex(value)
