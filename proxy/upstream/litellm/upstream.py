"""The adapter for all other providers: litellm translates, the direct adapter's connections carry.

It translates whole requests and answers, so it keeps no bytes; deadlines, cancellation and failures are those of the
direct adapter. litellm is loaded in a thread of its own, when a configuration first needs it.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from threading import Thread
from typing import Any

import structlog

from transom.proxy.config.settings import Model
from transom.proxy.errors import TransomError, UpstreamTimeout
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.upstream.direct import DirectUpstream
from transom.proxy.upstream.failures import let_go
from transom.proxy.upstream.litellm.arguments import arguments
from transom.proxy.upstream.litellm.call import Call, Refusal, current
from transom.proxy.upstream.litellm.failures import fault
from transom.proxy.upstream.litellm.library import Library, load
from transom.proxy.upstream.litellm.rehearsal import rehearse
from transom.proxy.upstream.litellm.reply import EVENTS, JSON, LitellmReply, events
from transom.proxy.upstream.litellm.shapes import completion

__all__ = ["LitellmUpstream"]

CHAT = "chat/completions"
ANTHROPIC_LIMIT = "anthropic-ratelimit-"

log = structlog.get_logger("transom.litellm")


class NotChat(TransomError):
    """Raise for endpoints that are not relayed to other providers."""

    status = 404
    code = "unknown_url"
    type = "invalid_request_error"
    sentence = "Models of other providers offer chat completions only."


class LitellmUpstream:
    """Call models through litellm; an `Upstream`.

    Args:
        direct: whose connections and deadlines the calls have; whoever made it closes it.
    """

    def __init__(self, direct: DirectUpstream) -> None:
        self._direct = direct
        self._loading: Future[Library] | None = None

    def prepare(self, models: Iterable[Model] = ()) -> None:
        """Begin to load litellm and what it needs for these models, unless that has begun; requests wait for it."""
        if self._loading is None:
            self._loading = Future()
            names = [model.upstream_model or "" for model in models if model.provider == "litellm"]
            Thread(target=_load, args=(self._loading, names), name="litellm", daemon=True).start()

    async def send(self, request: UpstreamRequest) -> LitellmReply:
        """Return the answer once it has begun; see `Upstream.send` for what it raises.

        Raises BadRequest besides, for a request that cannot be translated, and UpstreamAuth where the model has no key.
        """
        if request.path.partition("?")[0] != CHAT:
            raise NotChat
        library = await self._library()
        total_s = self._direct.deadlines.total_s
        asked = arguments(request, library.steering, total_s)
        call = Call(self._direct)
        outcome: LitellmReply | Refusal | TransomError
        within = current.set(call)
        try:
            async with asyncio.timeout(total_s):
                outcome = await _answer(library, request, asked, call)
        except TimeoutError:
            outcome = UpstreamTimeout()
        except Exception as raised:  # noqa: BLE001  litellm raises whatever its parts do
            outcome = fault(raised, call, asked)
            let_go(raised)
        except BaseException:
            await call.close()
            raise
        finally:
            current.reset(within)
        if isinstance(outcome, LitellmReply):
            return outcome
        await call.close()
        if isinstance(outcome, Refusal):
            return LitellmReply(outcome.status, outcome.headers, outcome.body, call)
        try:
            raise outcome
        finally:
            del outcome  # or its trace would hold this frame, and the request

    async def aclose(self) -> None:
        """Do nothing: the direct adapter's connections are closed with it."""

    async def _library(self) -> Library:
        self.prepare()
        assert self._loading is not None
        try:
            return await asyncio.shield(asyncio.wrap_future(self._loading))
        except Exception:  # noqa: BLE001  an import fails in many ways; the log has told how
            raise TransomError("The part of the proxy that reaches this provider could not be loaded.") from None


def _load(loading: "Future[Library]", names: list[str]) -> None:
    try:
        library = load()
        rehearse(library, names)
        loading.set_result(library)
    except BaseException as fault:  # noqa: BLE001  whoever waits must hear of it
        log.error("litellm cannot be loaded", error=type(fault).__name__)
        loading.set_exception(fault)


async def _answer(library: Library, request: UpstreamRequest, asked: dict[str, Any], call: Call) -> LitellmReply:
    """Make the call; of a stream wait for the first part, so that what fails before it has a status."""
    answer = await library.complete(**asked)
    if not request.stream:
        return LitellmReply(200, _headers(call, JSON), completion(answer, reasoned=call.reasoned), call)
    stream = events(answer, call, several=asked.get("n", 1) > 1)
    first = await anext(stream)
    return LitellmReply(200, _headers(call, EVENTS), first, call, stream)


def _headers(call: Call, content_type: str) -> dict[str, str]:
    """Return the provider's headers, Anthropic's rate limits also under OpenAI's names."""
    named = dict(call.headers)
    for name, value in call.headers.items():
        if name.startswith(ANTHROPIC_LIMIT):
            what, _, kind = name.removeprefix(ANTHROPIC_LIMIT).rpartition("-")
            named[f"x-ratelimit-{kind}-{what}"] = value
    return named | {"content-type": content_type}
