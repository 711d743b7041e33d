"""What a valid configuration comes to: the limits of every tenant and model, where text goes, and what may surprise.

It changes nothing and asks nobody: a model that is down or a key that is wrong is not found here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from transom.policies.strategy import SUMMARIZING
from transom.proxy.config.doubts import doubts
from transom.proxy.config.settings import ANY, OPENAI_BASE, Model, Route, Settings, Tenant
from transom.proxy.errors import ClientError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class RouteReview:
    """What one model of one tenant comes to. Tokens throughout; None is no limit, or unknown for the window."""

    tenant: str
    model: str
    policy: str
    strategy: tuple[str, ...]
    enforce: str
    window_tokens: int | None
    max_tokens: int | str | None
    reserve_tokens: int
    message_tokens: int | None
    max_context_items: int | None
    tool_calls_cap: int | None
    requests_go_to: str
    summaries_go_to: str | None


@dataclass(frozen=True, slots=True)
class Review:
    """Every route, and the warnings, one sentence each."""

    routes: tuple[RouteReview, ...]
    warnings: tuple[str, ...]


def review(settings: Settings, host: str | None = None, port: int | None = None) -> Review:
    """Say what the settings come to; `host` and `port` are where it is served, if not where the settings say."""
    routes: list[RouteReview] = []
    warnings = [*settings.config.remarks, *_about_access(settings, host, port)]
    for entry in settings.config.model_list:
        warnings.extend(_about_model(settings, entry.model_name))
    for name in _used_policies(settings):
        warnings.extend(f"policy {name}: {text}" for text in settings.config.policies[name].warnings())
    for tenant in settings.tenants.values():
        for route in _routes(tenant):
            routes.append(_review_route(tenant, route))
            warnings.extend(
                f"tenant {tenant.name}, model {_shown(route)}: {text}" for text in _about_route(tenant, route)
            )
    return Review(tuple(routes), tuple(dict.fromkeys(warnings)))


def message_tokens(route: Route) -> int | None:
    """Return how many tokens of messages a request may hold when it names no output limit and has no tools.

    None where neither the policy nor a known window says.
    """
    policy, window = route.policy, route.model.max_input_tokens
    left = None if window is None else window - policy.reserve_within(window)
    if isinstance(policy.max_tokens, int):
        return policy.max_tokens if left is None else min(policy.max_tokens, left)
    return left


def _routes(tenant: Tenant) -> Iterator[Route]:
    for name in tenant.model_names():
        yield tenant.route(name)
    template = tenant.all_models.get(ANY)
    policy = tenant.policy_name if tenant.models is None else tenant.models.get(ANY)
    if template is not None and policy is not None:
        yield Route(template, policy, tenant.policies[policy])


def _review_route(tenant: Tenant, route: Route) -> RouteReview:
    policy = route.policy
    writer = _writer(tenant, route)
    return RouteReview(
        tenant=tenant.name,
        model=route.model.name,
        policy=route.policy_name,
        strategy=policy.trimmers,
        enforce=policy.enforce,
        window_tokens=route.model.max_input_tokens,
        max_tokens=policy.max_tokens,
        reserve_tokens=policy.reserve_tokens,
        message_tokens=message_tokens(route) if policy.trimmers else None,
        max_context_items=policy.max_context_items,
        tool_calls_cap=policy.effective_tool_calls_cap,
        requests_go_to=route.model.destination,
        summaries_go_to=writer.destination if writer is not None else None,
    )


def _writer(tenant: Tenant, route: Route) -> Model | None:
    """Return the model that writes a route's summaries, or None where none are made."""
    if route.policy.enforce != "on" or SUMMARIZING.isdisjoint(route.policy.trimmers):
        return None
    try:
        return tenant.summary_route(route)
    except ClientError:
        return route.model


def _shown(route: Route) -> str:
    return f'"{ANY}"' if route.model.name == ANY else route.model.name


def _about_route(tenant: Tenant, route: Route) -> Iterator[str]:
    policy, window = route.policy, route.model.max_input_tokens
    if not policy.trimmers or policy.enforce == "off":
        return
    if not SUMMARIZING.isdisjoint(policy.trimmers) and policy.summary_model is not None:
        try:
            tenant.summary_route(route)
        except ClientError:
            yield (
                f"summary_model {policy.summary_model} is not one of this tenant's models, so a request's own model "
                "writes its summaries"
            )
    if window is None:
        if route.model.name != ANY and not isinstance(policy.max_tokens, int):
            yield (
                "its window is unknown, so no request is cut to fit it until the model has refused one as too long; "
                "set model_info.max_input_tokens"
            )
        return
    reserve = policy.reserve_within(window)
    if reserve < policy.reserve_tokens:
        yield (
            f"reserve_tokens {policy.reserve_tokens} is more than half of the window of {window} tokens; "
            f"{reserve} are kept for the answer"
        )
    elif isinstance(policy.max_tokens, int) and policy.max_tokens > window - reserve:
        yield (
            f"max_tokens {policy.max_tokens} can't be reached: the window of {window} tokens "
            f"less reserve_tokens {reserve} is the limit"
        )


def _about_model(settings: Settings, name: str) -> Iterator[str]:
    model = settings.models[name]
    entry = next(entry for entry in settings.config.model_list if entry.model_name == name)
    idle = (*entry.litellm_params.idle_params, *(f"model_info.{key}" for key in entry.model_info.idle_keys))
    if idle:
        yield f"model {name}: {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no effect here"
    yield from (f"model {name}: {text}" for text in doubts(entry.litellm_params))
    needs_key = any(tenant.upstream_key == "config" for tenant in settings.tenants.values())
    if model.api_base == OPENAI_BASE and model.api_key is None and needs_key:
        yield f"model {name}: has no api_key, so OpenAI will refuse its requests"


def _about_access(settings: Settings, host: str | None, port: int | None) -> Iterator[str]:
    server = settings.config.server
    host, port = host or server.host, server.port if port is None else port
    if not settings.models:
        yield "model_list is empty, so every request is answered with 404"
    if settings.anonymous is not None and server.allow_anonymous:
        yield (
            f"server.allow_anonymous: whoever reaches {host}:{port} uses the models "
            f"of the tenant {settings.anonymous.name} without a key"
        )
    if not settings.keys and host not in LOOPBACK and not server.allow_anonymous:
        yield f"no tenant has a key, so requests from other machines to {host} are answered with 401"
    for tenant in settings.tenants.values():
        if not tenant.key_hashes and tenant is not settings.anonymous:
            yield f"tenant {tenant.name}: has no keys, so nobody can use it"
        named = tenant.relay == "all" or not isinstance(tenant.relay, str)
        if named and tenant.upstream_key == "config" and len(settings.tenants) > 1:
            yield f"tenant {tenant.name}: relay lets it read and delete what other tenants keep at the same provider"
    if not settings.tenants:
        yield "tenants is empty, so nobody can use the proxy"


def _used_policies(settings: Settings) -> list[str]:
    used = {route.policy_name for tenant in settings.tenants.values() for route in _routes(tenant)}
    chosen = any("policy" in tenant.may_override for tenant in settings.tenants.values())
    return [name for name in settings.config.policies if chosen or name in used]
