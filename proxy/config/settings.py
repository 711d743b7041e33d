"""The configuration as requests use it: immutable, looked up by key and model name; it knows no files and no YAML."""

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal
from urllib.parse import urlsplit

from pydantic import JsonValue

from transom.policies.options import Policy
from transom.proxy.clipping import clipped, listed
from transom.proxy.config.model_entry import LiteLLMParams, ModelEntry, Provider
from transom.proxy.config.schema import Config, TenantEntry, hash_key
from transom.proxy.config.windows import Facts, known_model
from transom.proxy.errors import ModelNotAllowed, ModelNotFound

OPENAI_BASE = "https://api.openai.com/v1"
ANY = "*"
OTHER = "other"
DEFAULT = "default"
DEMO_WINDOW = 8192
"""Tokens of the built-in model's window."""

OutputLimit = Literal["max_tokens", "max_completion_tokens"]
Relay = Literal["stateless", "none", "all"] | tuple[str, ...]
Store = Literal["full", "summaries", "none"]
Override = Literal["policy", "off", "audit"]
UpstreamKey = Literal["config", "client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model as it is called.

    `upstream_model` is the name sent upstream; None, in the entry `"*"` only, passes the client's on, and a routed copy
    always has one. `label` is the bounded name for metrics. `max_input_tokens` is the window; None is unknown.
    `extra_headers` go up with every request, `params` are litellm's own (credentials, regions).
    """

    name: str
    provider: Provider
    upstream_model: str | None
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    reasons: bool = False
    forward_headers: tuple[str, ...] = ()
    passthrough_fields: tuple[str, ...] = ()
    output_limit_param: OutputLimit | None = None
    usage_in_stream: bool = True
    label: str = OTHER
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret of this model, to be struck out of texts."""
        texts = (self.api_key, *self.extra_headers.values(), *(v for v in self.params.values() if isinstance(v, str)))
        return tuple(text for text in texts if text)

    @property
    def destination(self) -> str:
        """Say where this model's text is sent: a host, or what stands for it."""
        if self.provider == "demo":
            return "this process"
        if self.api_base is not None:
            parts = urlsplit(self.api_base)
            return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        vendor, _, _ = (self.upstream_model or "a provider by name").partition("/")
        return f"{vendor} (through litellm)"


@dataclass(frozen=True, slots=True)
class Route:
    """What becomes of one model name of one tenant."""

    model: Model
    policy_name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: what it may do and where its models lead.

    `models` maps an allowed model name to its policy's name, None where every model is allowed under `policy_name`.
    `retention_days` is already storage's where the tenant has none of its own.
    """

    name: str
    key_hashes: tuple[str, ...] = field(repr=False)
    policy_name: str
    policy: Policy
    models: Mapping[str, str] | None
    may_override: frozenset[Override]
    relay: Relay
    store: Store
    retention_days: float | None
    upstream_key: UpstreamKey
    in_flight: int | None
    summary_tokens_per_day: int | None
    all_models: Mapping[str, Model] = field(repr=False)
    policies: Mapping[str, Policy] = field(repr=False)

    def route(self, model_name: str) -> Route:
        """Return the model and policy of a request.

        Raises ModelNotFound where no model of that name is configured, ModelNotAllowed where it is not this tenant's.
        """
        model = None if model_name == ANY else self.all_models.get(model_name)
        if model is None:
            template = self.all_models.get(ANY)
            if template is None or model_name == ANY:
                raise ModelNotFound(model_name)
            model = _named(template, model_name)
        policy_name = self._policy_of(model_name)
        if policy_name is None:
            allowed = listed(self.model_names())
            instead = f"it may use: {allowed}" if allowed else "it may use none"
            raise ModelNotAllowed(f"This key may not use the model `{clipped(model_name)}`; {instead}.", param="model")
        return Route(model, policy_name, self.policies[policy_name])

    def model_names(self) -> Iterator[str]:
        """Yield the configured models this tenant may ask for, `"*"` not among them."""
        for name in self.all_models:
            if name != ANY and self._policy_of(name) is not None:
                yield name

    def models_allowed(self) -> Iterator[Model]:
        """Return the models this tenant may use, that of the entry `"*"` not among them."""
        return (self.all_models[name] for name in self.model_names())

    def unnamed_model(self) -> Model | None:
        """Return where a request goes that names no model: the entry `"*"`, if this tenant may use it."""
        return self.all_models.get(ANY) if self._policy_of(ANY) is not None else None

    def summary_route(self, route: Route) -> Model:
        """Return the model that writes a route's summaries: the policy's, else the request's own.

        Raises as `route` does when the policy names a model this tenant does not have.
        """
        name = route.policy.summary_model
        return route.model if name is None else self.route(name).model

    def _policy_of(self, model_name: str) -> str | None:
        if self.models is None:
            return self.policy_name
        return self.models.get(model_name, self.models.get(ANY))


@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration, compiled; a reload makes a new one and a request keeps the one it began with."""

    config: Config = field(repr=False)
    tenants: Mapping[str, Tenant]
    models: Mapping[str, Model]
    anonymous: Tenant | None
    keys: Mapping[str, Tenant] = field(repr=False)

    def tenant_for_key(self, key: str) -> Tenant | None:
        """Return the tenant a key belongs to, or None."""
        digest = _digest(key)
        tenant = self.keys.get(digest)
        if tenant is None:
            return None
        return tenant if any(hmac.compare_digest(digest, known) for known in tenant.key_hashes) else None

    def is_admin_key(self, key: str) -> bool:
        """Tell whether this is the configured admin key; without a configured one nothing is."""
        known = self.config.admin.key
        return known is not None and hmac.compare_digest(_digest(key), known)

    def model(self, tenant: Tenant, name: str) -> Model:
        """Return a model of a tenant; raises as `Tenant.route` does."""
        return tenant.route(name).model

    @property
    def uses_litellm(self) -> bool:
        """Whether any model needs litellm imported."""
        return any(model.provider == "litellm" for model in self.models.values())


def compile_settings(config: Config) -> Settings:
    """Compile a validated configuration: names become objects, windows are looked up.

    The configuration must be consistent, as `load` and `from_mapping` leave it.
    """
    models = {entry.model_name: _compile_model(entry) for entry in config.model_list}
    tenants = {name: _compile_tenant(name, entry, config, models) for name, entry in config.tenants.items()}
    keys = {digest: tenant for tenant in tenants.values() for digest in tenant.key_hashes}
    anonymous = tenants.get(DEFAULT)
    if anonymous is not None and anonymous.key_hashes:
        anonymous = None
    return Settings(config, MappingProxyType(tenants), MappingProxyType(models), anonymous, MappingProxyType(keys))


def _digest(key: str) -> str:
    # A header may hold bytes that are no text; such a key belongs to nobody.
    return hash_key(key.encode("utf-8", "replace").decode())


def _compile_model(entry: ModelEntry) -> Model:
    params, info = entry.litellm_params, entry.model_info
    facts = Facts() if entry.model_name == ANY else _facts(params, info.base_model)
    return Model(
        name=entry.model_name,
        provider=params.provider,
        upstream_model=_upstream_name(params),
        api_base=params.address or (OPENAI_BASE if params.provider == "direct" else None),
        api_key=params.api_key,
        max_input_tokens=info.max_input_tokens or facts.max_input_tokens,
        max_output_tokens=info.max_output_tokens or facts.max_output_tokens,
        reasons=bool(facts.supports_reasoning if info.supports_reasoning is None else info.supports_reasoning),
        forward_headers=info.forward_headers,
        passthrough_fields=info.passthrough_fields,
        output_limit_param=info.output_limit_param,
        usage_in_stream=info.usage_in_stream,
        label=OTHER if entry.model_name == ANY else entry.model_name,
        extra_headers=MappingProxyType(_own_headers(params)),
        params=MappingProxyType(_own_params(params, info.base_model)),
    )


def _facts(params: LiteLLMParams, base_model: str | None) -> Facts:
    if params.provider == "demo":
        return Facts(max_input_tokens=DEMO_WINDOW)
    bare = params.model.removeprefix(f"{params.provider_name}/")
    # Bedrock's names may begin with a route or a region: bedrock/converse/anthropic.claude-…
    last = bare.rpartition("/")[2] if params.provider_name == "bedrock" else None
    return known_model((base_model, params.model, f"{params.provider_name}/{bare}", bare, last))


def _upstream_name(params: LiteLLMParams) -> str | None:
    if params.provider == "litellm":
        prefixed = params.custom_llm_provider is None or params.model.startswith(f"{params.custom_llm_provider}/")
        return params.model if prefixed else f"{params.custom_llm_provider}/{params.model}"
    name = params.model.partition("/")[2] if params.provider == "demo" else params.model.removeprefix("openai/")
    return None if name == ANY else name


def _own_headers(params: LiteLLMParams) -> dict[str, str]:
    headers = {name.lower(): value for name, value in params.extra_headers.items()}
    if params.organization and params.provider == "direct":
        headers["openai-organization"] = params.organization
    return headers


def _own_params(params: LiteLLMParams, base_model: str | None) -> dict[str, JsonValue]:
    if params.provider != "litellm":
        return {}
    named = {"organization": params.organization, "base_model": base_model}
    return params.provider_params | {name: value for name, value in named.items() if value}


def _named(template: Model, name: str) -> Model:
    """Return the model that the entry `"*"` stands for under a client's name."""
    upstream = name if template.upstream_model is None else template.upstream_model.replace(ANY, name)
    facts = known_model((upstream, upstream.rpartition("/")[2], f"openai/{upstream}"))
    return replace(
        template,
        name=name,
        upstream_model=upstream,
        max_input_tokens=template.max_input_tokens or facts.max_input_tokens,
        max_output_tokens=template.max_output_tokens or facts.max_output_tokens,
        reasons=template.reasons or bool(facts.supports_reasoning),
    )


def _compile_tenant(name: str, entry: TenantEntry, config: Config, models: Mapping[str, Model]) -> Tenant:
    policy_name = default_policy(entry, config)
    return Tenant(
        name=name,
        key_hashes=entry.keys,
        policy_name=policy_name,
        policy=config.policies[policy_name],
        models=None if entry.models is None else MappingProxyType(dict(entry.models)),
        may_override=frozenset(entry.may_override),
        relay=entry.relay,
        store=entry.store,
        retention_days=entry.retention_days or config.storage.retention_days,
        upstream_key=entry.upstream_key,
        in_flight=entry.limits.in_flight,
        summary_tokens_per_day=entry.limits.summary_tokens_per_day,
        all_models=MappingProxyType(dict(models)),
        policies=MappingProxyType(dict(config.policies)),
    )


def default_policy(entry: TenantEntry, config: Config) -> str:
    """Return the name of the policy a tenant's models have unless they say otherwise.

    Raises ValueError where the tenant names none and neither `default` nor a single policy says which.
    """
    if entry.policy is not None:
        return entry.policy
    if DEFAULT in config.policies:
        return DEFAULT
    if len(config.policies) == 1:
        return next(iter(config.policies))
    raise ValueError("names no policy, and with several policies none of them is called default")
