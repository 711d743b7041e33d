"""Conversations to store: what the proxy would make of a client's messages."""

import json
import os
from hashlib import blake2b

from transom.storage.identity import chain, session_secret
from transom.storage.rows import Batch, MessageRow, RequestRow, SessionRow
from transom.storage.sql_store import SqlStore

NOW = 1_800_000_000.0


class Talk:
    """One session and the ids of its messages."""

    def __init__(self, store: SqlStore, *, tenant: str = "acme", user: bytes | None = None) -> None:
        self.id = os.urandom(16)
        self.tenant = tenant
        self.user = user
        self.secret = session_secret(store.secret, self.id)

    def row(self, at: float = NOW) -> SessionRow:
        return SessionRow(self.id, self.tenant, None, "header", self.user, at)

    def ids(self, texts: list[str]) -> list[bytes]:
        return chain(self.secret, [blake2b(text.encode(), digest_size=16).digest() for text in texts])

    def messages(self, texts: list[str], start: int = 0) -> list[MessageRow]:
        """Return the rows of a thread, user and assistant in turn, from the `start`-th on."""
        ids = self.ids(texts)
        rows = []
        for place, (identity, text) in enumerate(zip(ids, texts, strict=True)):
            role = "assistant" if place % 2 else "user"
            payload = json.dumps({"role": role, "content": text}).encode()
            rows.append(MessageRow(identity, self.id, ids[place - 1] if place else None, payload, len(text), 1, role))
        return rows[start:]

    def batch(self, texts: list[str], start: int = 0, at: float = NOW) -> Batch:
        """Return what opens the session and stores a thread."""
        return Batch(sessions=[self.row(at)], messages=self.messages(texts, start))

    def request(self, texts: list[str], identity: str = "request-1", **fields: object) -> RequestRow:
        """Return the request that ended in the last of the texts."""
        named: dict[str, object] = {"model": "m", "policy": "default", "at": NOW, **fields}
        return RequestRow(id=identity, session=self.id, head=self.ids(texts)[-1], **named)  # type: ignore[arg-type]
