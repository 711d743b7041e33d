"""Tell how far a policy is enforced on one request: by the policy, by a header, or by the thread's place in a trial."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from transom.proxy.clipping import clipped, listed
from transom.proxy.config.settings import Route, Tenant
from transom.proxy.errors import BadRequest, OverrideNotAllowed

Mode = Literal["on", "audit", "control", "off"]

POLICY = b"x-transom-policy"
WINDOW = b"x-transom-window"


def overridden_route(route: Route, tenant: Tenant, headers: Mapping[bytes, bytes]) -> Route:
    """Return the route under the policy that a header names.

    Raises OverrideNotAllowed where the tenant may not choose; BadRequest for a policy there is not.
    """
    name = headers.get(POLICY)
    if name is None:
        return route
    if "policy" not in tenant.may_override:
        raise OverrideNotAllowed
    policy = tenant.policies.get(name.decode("latin-1"))
    if policy is None:
        asked = clipped(name.decode("latin-1"))
        raise BadRequest(
            f"There is no policy `{asked}`; there are: {listed(tenant.policies)}.", param="X-Transom-Policy"
        )
    return replace(route, policy_name=name.decode("latin-1"), policy=policy)


def mode_of(route: Route, tenant: Tenant, headers: Mapping[bytes, bytes], root: bytes | None) -> Mode:
    """Return how the policy acts on this request; `root` is the id of the thread's first message.

    Raises OverrideNotAllowed; BadRequest for a header that says neither `off` nor `audit`.
    """
    wish = headers.get(WINDOW)
    if wish is not None:
        return _wished(wish, tenant)
    policy = route.policy
    if policy.enforce != "on":
        return policy.enforce
    if policy.percent >= 100 or root is None:
        return "on"
    share = int.from_bytes(root[:4], "big") / 2**32 * 100
    return "on" if share < policy.percent else "control"


def _wished(wish: bytes, tenant: Tenant) -> Mode:
    mode: Literal["off", "audit"]
    if wish == b"off":
        mode = "off"
    elif wish == b"audit":
        mode = "audit"
    else:
        raise BadRequest("X-Transom-Window takes `off` or `audit`.", param="X-Transom-Window")
    if mode not in tenant.may_override:
        raise OverrideNotAllowed
    return mode
