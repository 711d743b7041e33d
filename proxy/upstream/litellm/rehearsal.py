"""A first call for each provider before anybody waits: litellm loads its parts when they are first used.

Nothing is sent: whoever would carry the call refuses. Only providers are rehearsed whose calls need no token of others.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from transom.proxy.errors import UpstreamUnreachable
from transom.proxy.upstream.http.message import HttpRequest
from transom.proxy.upstream.http.reply import HttpReply
from transom.proxy.upstream.litellm.call import Call, current
from transom.proxy.upstream.litellm.library import Library

__all__ = ["rehearse"]

_PROVIDERS = "anthropic azure bedrock deepseek gemini groq hosted_vllm mistral openrouter"
PROVIDERS = frozenset(_PROVIDERS.split())
CREDENTIALS: dict[str, dict[str, Any]] = {
    "azure": {"api_version": "2025-01-01"},
    "bedrock": {"aws_access_key_id": "-", "aws_secret_access_key": "-", "aws_region_name": "us-east-1"},
}
NOWHERE = "http://127.0.0.1:9"  # the port of the discard service (RFC 863)


class _Nobody:
    """Carry nothing."""

    async def fetch(self, request: HttpRequest) -> HttpReply:
        raise UpstreamUnreachable


def rehearse(library: Library, models: Iterable[str]) -> None:
    """Make a call that nobody carries for each provider of these models (litellm's names); to be called in a thread."""
    one_each = {name.partition("/")[0]: name for name in models}
    asyncio.run(_rehearse(library, [name for provider, name in one_each.items() if provider in PROVIDERS]))


async def _rehearse(library: Library, names: list[str]) -> None:
    current.set(Call(_Nobody()))
    messages = [{"role": "user", "content": "."}]
    for name in names:
        for stream in (False, True):
            given = {"api_key": "-", "api_base": NOWHERE} | CREDENTIALS.get(name.partition("/")[0], {})
            with suppress(Exception):
                await library.complete(model=name, messages=messages, stream=stream, max_retries=0, **given)
