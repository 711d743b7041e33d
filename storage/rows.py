"""What is handed to storage and comes back from it, one frozen value per table; knows no SQL and runs nothing.

Rows are made by the thousand, so they are msgspec's structs; none can be part of a cycle.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import force_setattr

LABEL_LIMIT = 200
"""Characters kept of a completion id: it comes from outside and is indexed."""


class SessionRow(Struct, frozen=True, gc=False):
    """A session when it is opened or used again; `at` is now in seconds. Writing it again only moves `used_at` on."""

    id: bytes
    tenant: str
    key_hash: bytes | None
    source: str
    user_hash: bytes | None
    at: float


class UseRow(Struct, frozen=True, gc=False):
    """A later sign of life of a session. Unlike a SessionRow it never brings an erased session back."""

    session: bytes
    at: float


class PreambleRow(Struct, frozen=True, gc=False):
    """The leading system messages of a request, stored once per content; payload None where no text may be kept."""

    id: bytes
    session: bytes
    payload: bytes | None
    tokens: int


class MessageRow(Struct, frozen=True, gc=False):
    """A message after the preamble; parent None for the first. Payload None where no text may be kept.

    The parent must be stored already or stand earlier in the same batch.
    """

    id: bytes
    session: bytes
    parent: bytes | None
    payload: bytes | None
    tokens: int
    items: int
    role: str


class RequestRow(Struct, frozen=True, gc=False):
    """What became of a request. Written again (same id, session and head) it replaces what it said before.

    `head` is the last message sent by the client (b"" if it sent a preamble only), `step` the effective policy's
    fingerprint of the step it was served by, `reply` the ids of the messages it made, 16 bytes each, joined, `turn` the
    mark of a delta that its client named, so that it is known when it is sent again.
    """

    id: str
    session: bytes
    head: bytes
    at: float
    model: str
    policy: str
    preamble: bytes | None = None
    step: bytes | None = None
    reply: bytes | None = None
    completion_id: str | None = None
    status: int | None = None
    complete: bool = False
    window: str = ""
    tool_limit: str | None = None
    messages_before: int | None = None
    messages_sent: int | None = None
    tokens_before: int | None = None
    tokens_sent: int | None = None
    tokens_stable: int | None = None
    token_limit: int | None = None
    usage_prompt: int | None = None
    usage_cached: int | None = None
    usage_completion: int | None = None
    duration_ms: int | None = None
    turn: bytes | None = None

    def __post_init__(self) -> None:
        """Shorten a completion id that no index would take."""
        if self.completion_id is not None and len(self.completion_id) > LABEL_LIMIT:
            force_setattr(self, "completion_id", self.completion_id[:LABEL_LIMIT])


class StepRow(Struct, frozen=True, gc=False):
    """The record of one pass: which view `policy` (a fingerprint) made of `head` under `preamble` (b"" for none).

    The recipe is JSON.
    """

    session: bytes
    head: bytes
    preamble: bytes
    policy: bytes
    recipe: bytes

    @property
    def recipe_text(self) -> str:
        """Return the recipe as stored."""
        return self.recipe.decode()


class BaselineRow(Struct, frozen=True, gc=False):
    """Where later passes start: message `at`, the `position`-th of its thread, is the last one replaced.

    `kind` is "summary" or "cut"; `policy` a fingerprint, b"" for what holds under every policy; the recipe is JSON.
    """

    session: bytes
    at: bytes
    position: int
    kind: str
    policy: bytes
    recipe: bytes
    summary: bytes | None = None

    @property
    def recipe_text(self) -> str:
        """Return the recipe as stored."""
        return self.recipe.decode()


class SummaryRow(Struct, frozen=True, gc=False):
    """A summary of a thread's messages up to `upto`, the `position`-th, with what it was made by.

    `previous` is the summary that it took in; `constraints` the user's own words, verified by the maker; `ledger` what
    else it is to keep word by word.
    """

    id: bytes
    session: bytes
    upto: bytes
    position: int
    previous: bytes | None
    text: str
    tokens: int
    model: str
    prompt_version: str
    constraints: tuple[str, ...] = ()
    ledger: tuple[str, ...] = ()

    @property
    def text_bytes(self) -> bytes:
        """Return the text as stored: bytes, since a model may write NUL; half an emoji becomes a question mark."""
        return self.text.encode("utf-8", "replace")

    @property
    def constraints_json(self) -> str:
        """Return the constraints as stored."""
        return _json(self.constraints)

    @property
    def ledger_json(self) -> str:
        """Return the ledger as stored."""
        return _json(self.ledger)


class LinkRow(Struct, frozen=True, gc=False):
    """A keyless session's mark at one of its assistant messages, by which its next request is known."""

    link: bytes
    session: bytes
    message: bytes


class FactorRow(Struct, frozen=True, gc=False):
    """The latest ratios of a model's own token count to ours, oldest first."""

    model: str
    ratios: tuple[float, ...]
    at: float

    @property
    def ratios_json(self) -> str:
        """Return the ratios as stored."""
        return _json(self.ratios)


class AuditRow(Struct, frozen=True, gc=False):
    """Who read or erased what; `session` None where it was not one session."""

    who: str
    what: str
    tenant: str | None
    session: bytes | None
    at: float


@dataclass(slots=True)
class Batch:
    """Rows that are committed together or not at all; messages stand parents first."""

    sessions: list[SessionRow] = field(default_factory=list)
    uses: list[UseRow] = field(default_factory=list)
    preambles: list[PreambleRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    summaries: list[SummaryRow] = field(default_factory=list)
    baselines: list[BaselineRow] = field(default_factory=list)
    steps: list[StepRow] = field(default_factory=list)
    requests: list[RequestRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    factors: list[FactorRow] = field(default_factory=list)
    audit: list[AuditRow] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Return about how many bytes the batch holds in memory."""
        text = sum([len(row.payload) for row in self.messages if row.payload])
        return 1000 + text + sum([len(row.payload) for row in self.preambles if row.payload])


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is stored of a thread: the known ids, its baselines (deepest first), their summaries."""

    known: set[bytes]
    baselines: list[BaselineRow]
    summaries: dict[bytes, SummaryRow]


@dataclass(frozen=True, slots=True)
class Place:
    """What is stored at the place where a turn is to be added.

    Args:
        stored: whether the message before the turn is there.
        is_head: whether that message ends a turn, and no later turn was answered.
        recorded: whether the turn itself came before.
        turns: the marks it came under, where its client gave it any.
        preamble: the system messages last sent with the thread that ends there.
    """

    stored: bool
    is_head: bool
    recorded: bool
    turns: frozenset[bytes]
    preamble: PreambleRow | None


def _json(values: Sequence[str] | Sequence[float]) -> str:
    """Return a JSON list that a person can read; half an emoji becomes a question mark."""
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace").decode()
