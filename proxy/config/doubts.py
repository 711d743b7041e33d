"""What is mistyped in where a model's requests go: an unknown provider is a fault, the rest may be right."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from urllib.parse import urlsplit

from transom.proxy.config.model_entry import LiteLLMParams
from transom.proxy.config.windows import known_providers, model_map


def doubts(params: LiteLLMParams) -> Iterator[str]:
    """Yield a sentence for a model without a provider, and for an address without a path."""
    if params.provider == "litellm" and params.provider_name is None and (providers := known_providers()):
        yield f"{params.model} names no provider{_did_you_mean(_with_provider(params, providers))}"
    if params.provider == "direct" and params.address is not None and not urlsplit(params.address).path:
        yield f"api_base {params.address} has no path, and most servers answer below /v1"


def unknown_provider(params: LiteLLMParams) -> str | None:
    """Say that the provider is none that can be called; None where it is one, or where litellm is not installed."""
    given = params.provider_name
    if params.provider != "litellm" or given is None:
        return None
    providers = known_providers()
    if not providers or given in providers:
        return None
    return f"{given} is no provider that litellm knows{_did_you_mean(_with_known_provider(params, given, providers))}"


def _did_you_mean(meant: str | None) -> str:
    return f"; did you mean {meant}?" if meant else "; write provider/model, as in openai/gpt-4o"


def _with_provider(params: LiteLLMParams, providers: frozenset[str]) -> str | None:
    models = model_map()
    name = params.model if params.model in models else _near(params.model, (n for n in models if "/" not in n))
    provider = models[name].provider if name is not None else None
    if provider in providers:
        return f"{provider}/{name}"
    return _compatible(params)


def _with_known_provider(params: LiteLLMParams, given: str, providers: frozenset[str]) -> str | None:
    near = _near(given, providers)
    if near is None:
        return _compatible(params)
    return near if params.custom_llm_provider else f"{near}/{params.model.partition('/')[2]}"


def _compatible(params: LiteLLMParams) -> str | None:
    """Return the name for an OpenAI-compatible server, which is what an address of one's own mostly is."""
    return f"openai/{params.model}" if params.address is not None else None


def _near(word: str, known: Iterable[str]) -> str | None:
    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.75)
    return found[0] if found else None
