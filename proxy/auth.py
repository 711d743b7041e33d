"""Tell on whose behalf a request comes, from its headers and its peer; it reads no body and keeps nothing."""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from transom.proxy.config.settings import Model, Settings, Tenant
from transom.proxy.errors import InvalidApiKey

FORWARDING = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)

NO_KEYS = (
    "No keys are configured, so only this machine may ask, directly and from no web page; give tenants keys, "
    "or set server.allow_anonymous or server.cors_origins, to let others in."
)
MISPLACED = "The key came in x-api-key; send it as `Authorization: Bearer …`."


def bearer_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the bearer token, if there is one."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip().decode("latin-1") or None if scheme.lower() == b"bearer" else None


def identify(
    scope: Scope, settings: Settings, headers: Mapping[bytes, bytes] | None = None
) -> tuple[Tenant, str | None]:
    """Return the tenant and, under `upstream_key: client`, the client's own bearer.

    A tenant's key comes as the bearer or, where the bearer is the client's own upstream key, in `X-Transom-Key`.
    Raises InvalidApiKey.
    """
    headers = dict(scope["headers"]) if headers is None else headers
    bearer = bearer_of(headers)
    own = headers.get(b"x-transom-key")
    key = own.decode("latin-1") if own is not None else bearer
    tenant = settings.tenant_for_key(key) if key is not None and settings.keys else None
    if tenant is None:
        tenant = _anonymous(scope, headers, settings, key, own_key=own is not None)
    if tenant.upstream_key == "client":
        return tenant, bearer if own is not None or tenant is settings.anonymous else None
    return tenant, None


def check_own_key(tenant: Tenant, bearer: str | None, model: Model) -> None:
    """Refuse to spend the configured key on a client that is to bring its own, and brought none.

    Where no key is configured, the model's server decides. Raises InvalidApiKey.
    """
    if bearer is None and tenant.upstream_key == "client" and model.api_key is not None:
        raise InvalidApiKey("Send your own key for the model's server as `Authorization: Bearer …`.")


def _anonymous(
    scope: Scope, headers: Mapping[bytes, bytes], settings: Settings, key: str | None, *, own_key: bool
) -> Tenant:
    """Return the tenant of requests without a key.

    Clients always send some key. Where no tenant has one, or the bearer is meant for the upstream, it is not ours to
    judge; where tenants have keys, an unknown one belongs to nobody.
    """
    tenant = settings.anonymous
    if tenant is None or own_key:
        raise _unknown(headers, key)
    if key is not None and settings.keys and tenant.upstream_key != "client":
        raise InvalidApiKey
    server = settings.config.server
    if not server.allow_anonymous and not is_local(scope, headers, server.cors_origins):
        raise _unknown(headers, key) if settings.keys else InvalidApiKey(NO_KEYS)
    return tenant


def _unknown(headers: Mapping[bytes, bytes], key: str | None) -> InvalidApiKey:
    return InvalidApiKey(MISPLACED if key is None and b"x-api-key" in headers else None)


def authorise(scope: Scope, settings: Settings) -> str:
    """Return who asks for the administrator's side: `key`, or `local` where no key is configured.

    Without a configured key only this machine may ask. Raises InvalidApiKey.
    """
    headers = dict(scope["headers"])
    if settings.config.admin.key is None:
        if is_local(scope, headers):
            return "local"
        raise InvalidApiKey("No admin key is configured, so only this machine may ask.")
    key = bearer_of(headers)
    if key is None or not settings.is_admin_key(key):
        raise InvalidApiKey("Send the admin key as a bearer.")
    return "key"


def is_local(scope: Scope, headers: Mapping[bytes, bytes], origins: tuple[str, ...] = ()) -> bool:
    """Tell whether a request comes from this machine: a loopback peer and Host, not forwarded, of no foreign page."""
    client = scope.get("client")
    if client is None or not _is_loopback(client[0]) or not FORWARDING.isdisjoint(headers):
        return False
    if not _is_loopback(_host(headers.get(b"host", b""))):
        return False
    origin = headers.get(b"origin")
    return origin is None or origin.decode("latin-1") in origins


@lru_cache(maxsize=1024)
def _host(value: bytes) -> str:
    try:
        return urlsplit(f"//{value.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
