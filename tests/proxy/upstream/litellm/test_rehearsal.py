"""What is called before anybody waits: each provider once in either way, and nobody outside."""

from typing import Any

import pytest

from transom.proxy.errors import UpstreamUnreachable
from transom.proxy.upstream.litellm.call import current
from transom.proxy.upstream.litellm.library import Library
from transom.proxy.upstream.litellm.rehearsal import NOWHERE, PROVIDERS, rehearse


def test_each_provider_that_asks_nobody_else_is_called_once() -> None:
    made: list[dict[str, Any]] = []

    async def complete(**arguments: Any) -> None:
        made.append(arguments)
        call = current.get()
        assert call is not None
        with pytest.raises(UpstreamUnreachable):
            await call.carrier.fetch(None)  # type: ignore[arg-type]
        raise ValueError("as litellm would")

    names = ["anthropic/a", "anthropic/b", "vertex_ai/g", "bedrock/converse/x", "sagemaker/s", "plain"]
    rehearse(Library(complete, frozenset()), names)
    assert [(m["model"], m["stream"]) for m in made] == [
        ("anthropic/b", False),
        ("anthropic/b", True),
        ("bedrock/converse/x", False),
        ("bedrock/converse/x", True),
    ]
    assert {m["api_base"] for m in made} == {NOWHERE}
    assert {"aws_access_key_id", "aws_secret_access_key"} <= set(made[-1])
    assert {"vertex_ai", "sagemaker", "github_copilot", "watsonx"}.isdisjoint(PROVIDERS)
    assert current.get() is None
