"""Faults that one key alone does not show: names that lead nowhere, doubled names and keys, foreign parameters."""

from collections.abc import Iterator
from typing import Any

from transom.policies.presets import PRESETS
from transom.proxy.config.doubts import unknown_provider
from transom.proxy.config.model_entry import (
    DEMO_MODEL,
    OWN_PROVIDER,
    LiteLLMParams,
    ModelInfo,
    known_info,
    known_param,
    refusal,
)
from transom.proxy.config.own_trimmers import unusable
from transom.proxy.config.places import Document, Fault, KeyPath
from transom.proxy.config.schema import Config
from transom.proxy.config.sentences import nearest, unknown_key
from transom.proxy.config.settings import ANY, default_policy

NO_BALANCER = (
    "Transom is no load balancer and no router; give each entry a name of its own, "
    "or put Transom in front of or behind a balancer"
)


def foreign_params(document: Document) -> Iterator[Fault]:
    """Yield the faults of every key under litellm_params and model_info that LiteLLM or Transom does not know."""
    entries = document.tree.get("model_list")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        path: KeyPath = ("model_list", index)
        for key in _keys(entry, "litellm_params"):
            if sentence := refusal(key):
                yield document.fault((*path, "litellm_params", key), sentence)
            elif not known_param(key):
                yield document.fault((*path, "litellm_params", key), unknown_key(key, LiteLLMParams.model_fields))
        for key in _keys(entry, "model_info"):
            if not known_info(key):
                yield document.fault((*path, "model_info", key), unknown_key(key, ModelInfo.model_fields))


def _keys(entry: Any, section: str) -> list[str]:
    held = entry.get(section) if isinstance(entry, dict) else None
    return list(held) if isinstance(held, dict) else []


def inconsistencies(config: Config, document: Document) -> Iterator[Fault]:
    """Yield the faults of a configuration whose keys are each valid."""
    yield from _doubled_models(config, document)
    yield from _doubled_keys(config, document)
    yield from _lost_names(config, document)
    yield from _lost_trimmers(config, document)
    yield from _lost_providers(config, document)
    if config.server.workers > 1 and config.storage.is_sqlite:
        yield document.fault(
            ("server", "workers"), "more than one worker needs PostgreSQL; set storage.url to postgresql+psycopg://…"
        )
    if config.server.admin_port and config.server.admin_port == config.server.port:
        yield document.fault(("server", "admin_port"), "is also server.port; leave it out to share that port")


def _doubled_models(config: Config, document: Document) -> Iterator[Fault]:
    first: dict[str, KeyPath] = {}
    for index, entry in enumerate(config.model_list):
        path: KeyPath = ("model_list", index, "model_name")
        if entry.model_name in first:
            before = document.place(first[entry.model_name])
            yield document.fault(path, f"{entry.model_name} is also at {before}; {NO_BALANCER}")
        else:
            first[entry.model_name] = path


def _doubled_keys(config: Config, document: Document) -> Iterator[Fault]:
    owner: dict[str, tuple[str, int]] = {}
    for name, tenant in config.tenants.items():
        for index, digest in enumerate(tenant.keys):
            if digest not in owner:
                owner[digest] = (name, index)
                continue
            other, _ = owner[digest]
            sentence = "is listed twice" if other == name else f"is also a key of the tenant {other}"
            yield document.fault(("tenants", name, "keys", index), sentence + "; every key belongs to one tenant")


def _lost_names(config: Config, document: Document) -> Iterator[Fault]:
    names = [entry.model_name for entry in config.model_list]
    for tenant_name, tenant in config.tenants.items():
        path: KeyPath = ("tenants", tenant_name)
        try:
            policies = [((*path, "policy"), default_policy(tenant, config))]
        except ValueError as error:
            yield document.fault(path, str(error))
            policies = []
        for model, policy in (tenant.models or {}).items():
            policies.append(((*path, "models", model), policy))
            if model != ANY and model not in names and ANY not in names:
                yield document.fault(
                    (*path, "models", model), f"no model of that name is in model_list{nearest(model, names)}"
                )
        for where, policy in policies:
            if policy not in config.policies:
                yield document.fault(where, _no_policy(policy, config))


def _no_policy(name: str, config: Config) -> str:
    if name in PRESETS:
        return f"{name} is a preset and no policy; write `{name}: {{preset: {name}}}` under policies"
    return f"there is no policy {name}{nearest(name, config.policies)}"


def _lost_providers(config: Config, document: Document) -> Iterator[Fault]:
    for index, entry in enumerate(config.model_list):
        params = entry.litellm_params
        key = "custom_llm_provider" if params.custom_llm_provider else "model"
        path: KeyPath = ("model_list", index, "litellm_params", key)
        if params.provider_name == OWN_PROVIDER:
            if params.provider != "demo":
                yield document.fault(path, f"the one model of {OWN_PROVIDER} is {DEMO_MODEL}")
        elif sentence := unknown_provider(params):
            yield document.fault(path, sentence)


def _lost_trimmers(config: Config, document: Document) -> Iterator[Fault]:
    for name, policy in config.policies.items():
        if sentence := unusable(policy.trimmers):
            yield document.fault(("policies", name, "strategy"), sentence)
