import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.storage.talk import NOW, Talk
from transom.storage.hex_type import as_bytes
from transom.storage.rows import (
    AuditRow,
    BaselineRow,
    Batch,
    FactorRow,
    LinkRow,
    PreambleRow,
    SessionRow,
    StepRow,
    SummaryRow,
)
from transom.storage.schema import metadata
from transom.storage.sql_store import SqlStore


def filled(talk: Talk) -> Batch:
    """Return a row for every table, with ids that are no text."""
    odd, recipe = b"\x00\xff\xd8" + os.urandom(13), b'{"start":1}'
    texts = ["grüß dich", "\x00 早上好"]
    head = talk.ids(texts)[-1]
    batch = talk.batch(texts)
    batch.sessions = [SessionRow(talk.id, "acme", odd, "header", odd, NOW)]
    batch.preambles.append(PreambleRow(odd, talk.id, b"[]", 1))
    batch.summaries.append(SummaryRow(odd, talk.id, head, 1, odd, "é \ud83d", 1, "m", "1", ("é",), ("\ud83d",)))
    batch.baselines.append(BaselineRow(talk.id, head, 1, "summary", odd, recipe, odd))
    batch.steps.append(StepRow(talk.id, head, odd, odd, recipe))
    batch.requests.append(talk.request(texts, preamble=odd, step=odd, reply=odd + head, completion_id="c"))
    batch.links.append(LinkRow(odd, talk.id, head))
    batch.factors.append(FactorRow("m", (1.0,), NOW))
    batch.audit.append(AuditRow("local", "export", None, odd, NOW))
    return batch


async def test_every_cell_is_text_that_a_person_can_read(sqlite_store: SqlStore, sqlite_file: Path) -> None:
    talk = Talk(sqlite_store)
    await sqlite_store.write(filled(talk))
    await sqlite_store.lease(talk.id, b"\xff", "holder", 60)

    def text(cell: Any) -> str:
        return cell.decode() if isinstance(cell, bytes) else str(cell)

    with closing(sqlite3.connect(sqlite_file)) as connection:
        for table in metadata.tables:
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            assert rows, table
            assert not any("\ufffd" in text(cell) for row in rows for cell in row), table
        for statement in ("SELECT recipe FROM steps", "SELECT ledger FROM summaries", "SELECT payload FROM messages"):
            json.loads(connection.execute(statement).fetchone()[0])


async def test_ids_are_the_same_text_in_the_database_and_in_what_is_told(
    sqlite_store: SqlStore, sqlite_file: Path
) -> None:
    talk = Talk(sqlite_store)
    await sqlite_store.write(filled(talk))
    told = await sqlite_store.session(talk.id)
    assert told is not None
    with closing(sqlite3.connect(sqlite_file)) as connection:
        assert connection.execute("SELECT id FROM sessions").fetchall() == [(told["id"],)]
        listed = [(message["id"], message["parent"]) for message in told["messages"]]
        assert connection.execute("SELECT id, parent FROM messages ORDER BY seq").fetchall() == listed
        assert connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0] == (
            sqlite_store.secret.hex()
        )


def test_nothing_stays_nothing() -> None:
    assert as_bytes(None) is None
    assert as_bytes("") == b""
    assert as_bytes("00ff") == b"\x00\xff"
