"""The committed documentation is what the schema says."""

import subprocess
import sys
from pathlib import Path

from transom.policies.options import Policy
from transom.policies.presets import PRESETS
from transom.proxy.config.reference import fill, key_table, preset_table
from transom.proxy.config.schema import Config

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_committed_document_is_current() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert fill(text) == text


def test_every_key_has_a_row() -> None:
    rows = key_table().splitlines()
    for section in ("server", "storage", "session", "limits", "admin"):
        model = Config.model_fields[section].annotation
        for key in model.model_fields:  # type: ignore[union-attr]
            assert sum(row.startswith(f"| `{section}.{key}` |") for row in rows) == 1
    for key in Policy.model_fields:
        assert sum(row.startswith(f"| `policies.NAME.{key}` |") for row in rows) == 1
    assert {row.count("|") - row.count("\\|") for row in rows} == {6}


def test_rows_say_type_unit_default_and_meaning() -> None:
    assert "| `server.drain_s` | number | s | `30` | How long open requests may go on after SIGTERM. |" in key_table()
    assert "| `policies.NAME.max_tokens` | whole number or `auto` or null | tokens | `null` |" in key_table()
    assert "| `storage.retention_days` | number or null | days | `null` |" in key_table()


def test_every_preset_has_a_row() -> None:
    assert [row.split("`")[1] for row in preset_table().splitlines()[2:]] == list(PRESETS)


def test_run_as_a_module_it_renews_the_document(tmp_path: Path) -> None:
    stale = tmp_path / "configuration.md"
    text = DOCUMENT.read_text("utf-8")
    stale.write_text(text.replace("How long open requests may go on", "stale"), "utf-8")
    subprocess.run([sys.executable, "-m", "transom.proxy.config.reference", str(stale)], check=True)
    assert stale.read_text("utf-8") == text
