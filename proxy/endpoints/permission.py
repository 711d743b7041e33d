"""Which requests below `/v1/` are relayed besides chat: a table and a few rules, by path, method and tenant alone.

1. `STATELESS` are questions that leave nothing behind. Every tenant may ask them, unless its `relay` is `none`.
2. Everything else names objects of the provider's account (files, batches, stored completions, …), which all tenants of
   one key share: it is relayed only with the client's own key, or where the tenant's `relay` names it.
3. Conversations that would pass without a window are not relayed at all.
4. What is judged is what is sent: a path that upstreams might read in another way is no path.
"""

import re
from dataclasses import dataclass

from transom.proxy.config.settings import Tenant
from transom.proxy.errors import EndpointNotAllowed, MethodNotAllowed, NotWindowed, UnknownUrl

__all__ = ["STATELESS", "Endpoint", "endpoint", "meant"]

PREFIX = "/v1/"
STATELESS = ("embeddings", "completions", "moderations", "rerank", "images/{name}", "audio/{name}")
# Voices and consents are kept in the account, under ids.
KEPT = frozenset({"audio/voices", "audio/voice_consents"})
NOT_WINDOWED = frozenset({"responses", "messages"})
CHAT = "chat/completions"  # under another path than its own, as Azure's deployments have it
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
OTHER = "other"

_STATELESS = re.compile("|".join(path.replace("{name}", r"[A-Za-z0-9_\-]+") for path in STATELESS))
# Unreserved characters and those that ids are made of (RFC 3986, 3.3); no percent sign, no empty or dot segment, and
# no semicolon, which some servers take for the end of a segment's name.
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9_\-.~:@!$&'()*+,=]+"
_PATH = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What may be called.

    Attributes:
        path: below `/v1/`, safe to put into an address as it is.
        label: its bounded name for metrics: the first word of a stateless path, else `other`.
        stateless: whether it asks a model and leaves nothing behind.
    """

    path: str
    label: str
    stateless: bool


def endpoint(method: str, path: str, tenant: Tenant, *, own_key: bool) -> Endpoint:
    """Return what a request calls, if it may.

    Args:
        method: in capitals.
        path: the decoded path of the request, `/v1/` included.
        tenant: whose `relay` decides.
        own_key: whether the client's own key goes upstream.

    Raises:
        UnknownUrl: it is no path of this API.
        NotWindowed: a conversation that is not windowed.
        EndpointNotAllowed: it is not relayed for this tenant.
        MethodNotAllowed: a stateless endpoint or chat, called otherwise than with POST.
    """
    wanted = path.removeprefix(PREFIX)
    if not path.startswith(PREFIX) or not _PATH.fullmatch(wanted):
        raise UnknownUrl
    if method not in METHODS:
        raise MethodNotAllowed(headers={"allow": "POST" if wanted == CHAT else ", ".join(sorted(METHODS))})
    asked = wanted.lower()  # some servers do not tell capitals from small letters
    if method == "POST" and (asked in NOT_WINDOWED or asked.endswith(CHAT)):
        raise NotWindowed
    stateless = asked not in KEPT and _STATELESS.fullmatch(wanted) is not None
    if tenant.relay != "none":
        if stateless and method == "POST":
            return Endpoint(wanted, wanted.partition("/")[0], stateless=True)
        if own_key or _named(wanted, tenant):
            return Endpoint(wanted, OTHER, stateless=False)
        if stateless:
            raise MethodNotAllowed(headers={"allow": "POST"})
    if wanted == CHAT:
        raise MethodNotAllowed("Chat completions are asked for with POST.", headers={"allow": "POST"})
    raise EndpointNotAllowed


def meant(path: str) -> str | None:
    """Return the path that was meant by one without `/v1`, if it is one of this API's."""
    wanted = path.removeprefix("/")
    known = wanted in (CHAT, "models") or _STATELESS.fullmatch(wanted) is not None
    return PREFIX + wanted if known else None


def _named(path: str, tenant: Tenant) -> bool:
    """Tell whether the tenant's `relay` names a path, or one above it: `files`, `/v1/files`, `files/*`."""
    if isinstance(tenant.relay, str):
        return tenant.relay == "all"
    names = (name.strip("/").removeprefix("v1/").removesuffix("/*") for name in tenant.relay)
    return any(path == name or path.startswith(f"{name}/") for name in names)
