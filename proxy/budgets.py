"""Work out what one request is held to: the policy's limits, the model's window, and what tools and answer need."""

from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.view import Size
from transom.proxy.config.settings import Route

POLICY_VERSION = b"3"  # part of every step's key: change it when the same policy starts to send other bytes
TIMING_ONLY = {  # keys that cannot change the bytes sent
    "summary_wait", "summary_timeout", "compact_at", "min_span_tokens", "percent", "enforce", "preset", "on_tool_limit",
}  # fmt: skip
MOST_POLICIES = 1_000
MOST_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one request.

    `most` is the policy's own limit of messages and `window` the model's of everything, both in the provider's tokens,
    as is `reserve`, which the answer needs; `overhead` is the o200k count of tools and schemas. `factor` turns an o200k
    count into the provider's. `note` is set aside for a note at the end, `spare` for what recall brings back.
    """

    most: int | None
    window: int | None
    reserve: int
    overhead: int
    items: int | None
    factor: float = 1.0
    note: Size = Size(0, 0)
    spare: Size = Size(0, 0)
    tokens: tuple[int, ...] = field(init=False)  # the token limits in o200k tokens of messages
    limits: Limits = field(init=False)  # what a view is cut to
    most_sent: Limits = field(init=False)  # what is sent must hold, with what recall brought back

    def __post_init__(self) -> None:
        """Work out what every step of a request asks for."""
        found = []
        if self.most is not None:
            # A limit somebody wrote holds by either count: a factor below 1 is a median, half of all are above it.
            found.append(int(self.most / max(1.0, self.factor)))
        if self.window is not None:
            found.append(max(0, int((self.window - self.reserve) / self.factor) - self.overhead))
        object.__setattr__(self, "tokens", tuple(found))
        object.__setattr__(self, "limits", self._limits(found, self.note + self.spare))
        object.__setattr__(self, "most_sent", self._limits(found, self.note))

    def reachable(self, floor: Size, bare: Size) -> Limits:
        """The limits worth cutting for: those that what is never removed does not exceed by itself.

        `floor` is the size of that, and `bare` the same without a summary, which stays away before a limit is given up.
        What is set aside for recall is given up before both: it brings something back only where there is room.
        """
        needed = bare + self.note
        tokens = [t for t in self.tokens if t >= needed.tokens]
        with_spare = self._limits(tokens, self.note + self.spare)
        if with_spare.hold(floor):
            return with_spare
        return self._limits(tokens, self.note).reachable(bare)

    def _limits(self, tokens: list[int], aside: Size) -> Limits:
        return Limits(
            min(tokens) - aside.tokens if tokens else None,
            None if self.items is None else self.items - aside.items,
        )

    @property
    def shown(self) -> int | None:
        """The token limit for the response header, in o200k tokens."""
        return min(self.tokens, default=None)

    @property
    def key(self) -> tuple[object, ...]:
        """What of the budget can change the bytes sent; not the factor, which moves between a request and its retry."""
        return (self.most, self.window, self.reserve, self.overhead, self.items, *self.note, *self.spare)


_budget = lru_cache(maxsize=MOST_KEPT)(Budget)  # most requests of a model are held to the same


def budget_for(
    route: Route, *, window: int | None, overhead: int, output_limit: int | None, factor: float, note: Size
) -> Budget:
    """Return the budget of one request.

    `output_limit` is what the request itself reserves for the answer, else the policy's `reserve_tokens` are.
    """
    policy = route.policy
    return _budget(
        policy.max_tokens if isinstance(policy.max_tokens, int) else None,
        window,
        _reserve(policy, window, output_limit),
        overhead,
        policy.max_context_items,
        factor,
        note,
        Size(policy.recall_tokens, 1) if "recall" in policy.trimmers else Size(0, 0),
    )


def _reserve(policy: Policy, window: int | None, output_limit: int | None) -> int:
    """Return what is kept for the answer, but no reserve that leaves messages no room.

    The policy's is at most half of a window; the request's own holds unless it asks for all of the window, or more.
    """
    if output_limit is None:
        return policy.reserve_tokens if window is None else policy.reserve_within(window)
    return output_limit if window is None or output_limit < window else window // 2


_written: dict[int, tuple[Policy, bytes]] = {}  # by identity; the policy is held, so that its id stays its own


def _fingerprint(policy: Policy) -> bytes:
    known = _written.get(id(policy))
    if known is None:
        if len(_written) >= MOST_POLICIES:
            _written.clear()
        known = _written[id(policy)] = (policy, policy.model_dump_json(exclude=TIMING_ONLY).encode())
    return known[1]


def policy_hash(route: Route, budget: Budget) -> bytes:
    """Return 16 bytes that name everything of a request that can change the bytes sent, but the messages."""
    return _policy_hash(_fingerprint(route.policy), route.model.name, budget.key)


def cut_hash(route: Route) -> bytes:
    """Return 16 bytes that name the policy and model a cut belongs to, whatever reserve and tools are now."""
    return _cut_hash(_fingerprint(route.policy), route.model.name)


@lru_cache(maxsize=MOST_KEPT)
def _policy_hash(policy: bytes, model: str, budget: tuple[object, ...]) -> bytes:
    limits = "|".join(map(str, budget)).encode()
    return blake2b(b"|".join((POLICY_VERSION, policy, _named(model), limits)), digest_size=16).digest()


@lru_cache(maxsize=MOST_KEPT)
def _cut_hash(policy: bytes, model: str) -> bytes:
    return blake2b(b"cut" + policy + _named(model), digest_size=16).digest()


def _named(model: str) -> bytes:
    return model.encode("utf-8", "surrogatepass")
