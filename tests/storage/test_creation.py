import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_mock_engine

from transom.storage.creation import create


def test_a_new_file_is_opened_without_what_only_others_need(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom transom.storage.sql_store import SqlStore\n"
        "SqlStore.open('sqlite+aiosqlite:///transom.db')\n"
        "print([n for n in ('alembic', 'sqlalchemy.dialects.postgresql', 'psycopg') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("url", ["sqlite://", "postgresql+psycopg://"])
def test_the_index_of_completions_holds_those_alone_that_have_one(url: str) -> None:
    said: list[str] = []
    engine = create_mock_engine(url, lambda sql, *_, **__: said.append(str(sql.compile(dialect=engine.dialect))))
    create(engine.connect(), schema=7, readable_from=3)  # type: ignore[arg-type]
    [index] = [sql for sql in said if "CREATE INDEX requests_completions" in sql]
    assert index.endswith("WHERE completion_id IS NOT NULL")
