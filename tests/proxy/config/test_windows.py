"""What litellm's model map says, without litellm."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from transom.proxy.config import windows
from transom.proxy.config.windows import Facts, known_model, known_providers


@pytest.fixture
def fresh_map() -> Iterator[None]:
    windows.model_map.cache_clear()
    windows.known_providers.cache_clear()
    yield
    windows.model_map.cache_clear()
    windows.known_providers.cache_clear()


def test_a_known_model() -> None:
    facts = known_model((None, "no-such-model", "gpt-4o-mini"))
    assert (facts.max_input_tokens, facts.max_output_tokens) == (128_000, 16_384)


def test_the_providers_of_both_files() -> None:
    assert {"openai", "anthropic", "hosted_vllm", "ollama_chat"} <= known_providers()
    assert {"nano-gpt", "sagemaker_nova"} <= known_providers()  # in the table of compatible ones, in the enumeration
    assert "gpt-4o-mini" not in known_providers()
    assert known_model(("gpt-4o-mini",)).provider == "openai"


def test_an_unknown_model() -> None:
    assert known_model(("no-such-model",)) == Facts()


def test_prose_in_the_map_is_no_number() -> None:
    assert known_model(("sample_spec",)).max_input_tokens is None


def test_litellm_is_not_imported() -> None:
    code = "import sys; from transom.proxy.config.windows import known_model; known_model(('gpt-4o',)); \
print('litellm' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


@pytest.mark.usefixtures("fresh_map")
def test_without_the_package_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "find_spec", lambda _name: None)
    assert known_model(("gpt-4o",)) == Facts()
    assert known_providers() == frozenset()


@pytest.mark.usefixtures("fresh_map")
@pytest.mark.parametrize("text", [None, "{broken"])
def test_without_a_readable_map_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / windows.MODEL_MAP).write_text(text)
    spec = ModuleSpec("litellm", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(windows, "find_spec", lambda _name: spec)
    assert known_model(("gpt-4o",)) == Facts()
    assert importlib.util.find_spec("litellm") is not None
