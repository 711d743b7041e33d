"""The one module that imports litellm: offline, silent, without retries, callbacks or caches, on this proxy's wire.

1. Nothing is fetched: model map and header lists are those of the package; pictures and documents that messages name
   by address are never downloaded.
2. Nothing is kept or told: no callbacks, no caches, no log lines (they would hold message text), no printing.
3. Every request of a call goes through `transport.Transport`, whichever client litellm makes for it.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ssl import SSLContext
from threading import Lock
from typing import Any, NoReturn

__all__ = ["FetchRefused", "Library", "load"]

# Read by litellm while it is imported, and by its native part at each call.
ENVIRONMENT = {
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "true",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_RUST": "false",  # its native part has connections of its own
    "MAX_IMAGE_URL_DOWNLOAD_SIZE_MB": "0",
}
SWITCHES: dict[str, Any] = {
    "drop_params": False,
    "modify_params": False,
    "num_retries": None,
    "cache": None,
    "model_fallbacks": None,
    "enable_anthropic_prompt_caching": False,  # it would add cache_control
    "suppress_debug_info": True,
    "turn_off_message_logging": True,
    "redact_messages_in_exceptions": True,
    "log_raw_request_response": False,
    "disable_streaming_logging": True,
    "disable_hf_tokenizer_download": True,
    # It counts for estimates nobody sees, and downloads pictures to learn their size.
    "disable_token_counter": True,
}
_CALLBACKS = """
callbacks input_callback success_callback failure_callback service_callback
_async_input_callback _async_success_callback _async_failure_callback
"""
CALLBACKS = tuple(_CALLBACKS.split())
LOGGERS = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
SILENT = logging.CRITICAL + 1

_loading = Lock()
_loaded: "list[Library]" = []


class FetchRefused(Exception):
    """Raise when litellm would fetch what a message names by its address."""


@dataclass(frozen=True, slots=True)
class Library:
    """What is used of litellm: its completion function, and the names of parameters that steer it."""

    complete: Callable[..., Awaitable[Any]]
    steering: frozenset[str]


def load() -> Library:
    """Import and tame litellm, once in a process. Takes seconds and some 190 MB: to be called in a thread."""
    with _loading:
        if not _loaded:
            _loaded.append(_import())
        return _loaded[0]


def _import() -> Library:
    os.environ.update(ENVIRONMENT)
    import litellm  # noqa: PLC0415
    from litellm.litellm_core_utils import url_utils  # noqa: PLC0415
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler  # noqa: PLC0415
    from litellm.llms.vertex_ai.context_caching import vertex_ai_context_caching  # noqa: F401, PLC0415  has a callback

    for name, value in SWITCHES.items():
        setattr(litellm, name, value)
    for name in CALLBACKS:
        getattr(litellm, name).clear()
    for name in LOGGERS:
        logging.getLogger(name).setLevel(SILENT)
    AsyncHTTPHandler.create_async_transport = staticmethod(_transport)
    url_utils.validate_url = _refuse_address  # which every fetch of an address in a message begins with
    return Library(litellm.acompletion, _steering(litellm))


def _transport(ssl_context: SSLContext | None = None, ssl_verify: bool | None = None, **_: object) -> object:
    """Do as litellm's own function of this signature, for all its asynchronous clients and those of OpenAI's SDK."""
    from transom.proxy.upstream.litellm.transport import Transport  # noqa: PLC0415  it imports an HTTP client

    return Transport(tls=ssl_context if ssl_context is not None else ssl_verify is not False)


def _refuse_address(_url: str) -> NoReturn:
    raise FetchRefused


def _steering(litellm: Any) -> frozenset[str]:
    from inspect import signature  # noqa: PLC0415

    from litellm.types.utils import all_litellm_params  # noqa: PLC0415

    return frozenset(all_litellm_params) | frozenset(signature(litellm.completion).parameters)
