"""Which configuration a command works on."""

from pathlib import Path

import pytest

from transom.proxy.cli.source import default_text, find_source
from transom.proxy.config.load import from_text
from transom.proxy.config.review import review
from transom.proxy.config.settings import compile_settings

SHIPPED = Path(__file__).parents[3] / "config.yaml"


def test_the_embedded_default_is_the_shipped_file() -> None:
    assert default_text() == SHIPPED.read_text("utf-8")


def test_the_default_works_as_it_is() -> None:
    settings = compile_settings(from_text(default_text(), "config.yaml", environment={}))
    assert [model.provider for model in settings.models.values()] == ["demo"]
    assert settings.anonymous is not None
    assert settings.anonymous.route("demo").policy.preset == "chat"
    assert settings.anonymous.retention_days == 30
    assert review(settings).warnings == ()


def test_every_example_in_the_default_is_valid() -> None:
    lines = []
    for line in default_text().splitlines():
        indent, mark, rest = line.partition("# ")
        # A commented-out key, not a sentence: it is indented with its section or names one.
        example = (
            bool(mark) and not indent.strip() and rest[:1] in "- abcdefghijklmnopqrstuvwxyz" and rest.strip() != ""
        )
        lines.append(indent + rest if example else line)
    environment = {"TRANSOM_ADMIN_KEY": "a", "OPENAI_API_KEY": "b", "ACME_KEY": "c"}
    text = "\n".join(lines).replace("file:/run/secrets/anthropic", "key")
    config = from_text(text, "config.yaml", environment=environment)
    assert [entry.model_name for entry in config.model_list] == ["demo", "gpt-4o-mini", "local", "claude", "*"]
    assert set(config.tenants) == {"default", "acme"}
    assert config.policies["default"].max_tokens == 8000
    assert config.server.allow_anonymous
    assert config.admin.key is not None


def test_the_file_named_then_the_one_here_then_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = find_source(None)
    assert (source.name, source.path) == ("built-in default", None)
    assert source.read().storage.retention_days == 30
    (tmp_path / "config.yaml").write_text("server: {port: 1}")
    source = find_source(None)
    assert (source.path, source.read().server.port) == (Path("config.yaml"), 1)
    (tmp_path / "other.yaml").write_text("server: {port: 2}")
    source = find_source(Path("other.yaml"))
    assert (source.path, source.read().server.port) == (Path("other.yaml"), 2)
