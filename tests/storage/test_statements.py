from dataclasses import fields
from typing import Any, cast

import pytest
from sqlalchemy.dialects.postgresql.psycopg import dialect as postgres
from sqlalchemy.dialects.sqlite.pysqlite import dialect as sqlite

from transom.storage.rows import Batch
from transom.storage.statements import write_statements

DIALECTS: list[Any] = [sqlite(paramstyle="qmark"), cast("Any", postgres)(paramstyle="format")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_list_of_a_batch_is_written_parents_first(dialect: Any) -> None:
    writes = write_statements(dialect)
    names = [write.rows for write in writes]
    assert sorted(names) == sorted(column.name for column in fields(Batch))
    assert names.index("sessions") < names.index("messages") < names.index("requests")


def test_processes_take_each_tables_rows_in_one_order() -> None:
    orders = [{write.rows: write.order for write in write_statements(dialect)} for dialect in DIALECTS]
    alone, together = orders
    assert set(alone.values()) == {None}
    assert {rows for rows, order in together.items() if order is None} == {"audit"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_history_is_only_ever_added_to(dialect: Any) -> None:
    for write in write_statements(dialect):
        if write.rows in ("messages", "preambles", "summaries", "baselines", "steps", "links"):
            assert "ON CONFLICT DO NOTHING" in write.sql
        assert "DELETE" not in write.sql
        assert "RETURNING" not in write.sql
