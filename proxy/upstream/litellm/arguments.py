"""From a chat request to the arguments of litellm's completion call, so that no client steers litellm through its body.

1. Fields of OpenAI's chat API go through, and those that the model's `passthrough_fields` name.
2. Fields that only this proxy reads are left out. `metadata` is among them: litellm would take it for its own.
3. Any other field is refused, so that nothing is lost in silence; litellm's own names even where a model lets them in.
4. A field that is null is one that was not sent.
5. Of the headers those go on that say something about the request; what frames or introduces it is litellm's.
"""

import re
from typing import Any

import msgspec

from transom.proxy.config.settings import OTHER, Model
from transom.proxy.errors import BadRequest, InvalidApiKey, ModelNotFound
from transom.proxy.upstream.base import UpstreamRequest

__all__ = ["arguments"]

_OPENAI = """
messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream
stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
"""
OPENAI = frozenset(_OPENAI.split())
READ_HERE = frozenset({"metadata", "litellm_session_id"})
# Parameters of providers' own that litellm's completion call happens to name.
PROVIDERS_OWN = frozenset({"thinking"})
# What litellm would look up in the environment or fetch, were it to come as a key.
REFERENCES = ("os.environ/", "oidc/")
# Some providers' model names may be addresses, and all become part of one.
NAME = re.compile(r"[A-Za-z0-9._:@+/\-]+")
FRAMING = frozenset({"accept", "content-type", "user-agent"})
LIBRARY_HEADERS = "x-stainless-"


def arguments(request: UpstreamRequest, steering: frozenset[str], timeout_s: float) -> dict[str, Any]:
    """Return the keyword arguments of the completion call.

    Args:
        request: whose body is a chat request.
        steering: names of litellm's own.
        timeout_s: for the whole call.

    Raises:
        BadRequest: the body holds a field that does not go through; `param` names it.
        InvalidApiKey: the client's own key is a reference.
        ModelNotFound: the name that a client chose under `"*"` is no plain name.
    """
    model = request.model
    fields = _fields(request.body)
    for name in fields:
        _check(name, model, steering)
    passed = {name: value for name, value in fields.items() if name not in READ_HERE and value is not None}
    return passed | {
        **model.params,
        "model": _name(model),
        "stream": request.stream,
        "api_base": model.api_base,
        "api_key": _key(request),
        "extra_headers": _headers(request) or None,
        "timeout": timeout_s,
        "max_retries": 0,
        "num_retries": 0,
        "caching": False,
        "no-log": True,
        "_skip_mcp_handler": True,
    }


def _fields(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("The request holds a value that cannot be translated for the model's provider.") from None


def _check(name: str, model: Model, steering: frozenset[str]) -> None:
    if name in OPENAI or name in READ_HERE:
        return
    if name in steering and name not in PROVIDERS_OWN:
        raise BadRequest(f"The field {name} would steer the proxy itself and is not taken from a request.", param=name)
    if name not in model.passthrough_fields:
        raise BadRequest(
            f"The field {name} is not part of OpenAI's chat API; leave it out, or have it named in the model's "
            "passthrough_fields if its provider knows it.",
            param=name,
        )


def _name(model: Model) -> str:
    name = model.upstream_model or model.name
    if model.label == OTHER and (not NAME.fullmatch(name) or "://" in name or ".." in name):
        raise ModelNotFound(name)
    return name


def _key(request: UpstreamRequest) -> str | None:
    if request.bearer is not None and request.bearer.startswith(REFERENCES):
        raise InvalidApiKey
    return request.model.api_key if request.bearer is None else request.bearer


def _headers(request: UpstreamRequest) -> dict[str, str]:
    own = {name: value for name, value in request.headers if _goes_on(name)}
    return own | dict(request.model.extra_headers)


def _goes_on(name: str) -> bool:
    return name not in FRAMING and not name.startswith(LIBRARY_HEADERS)
