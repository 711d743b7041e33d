"""Every key of config.yaml with its type, unit, default and meaning; it knows nothing of files and lines."""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from transom.policies.options import Policy
from transom.proxy.config.model_entry import ModelEntry

SESSION_HEADERS = (
    "X-Session-Id",
    "X-Transom-Session",
    "X-LiteLLM-Session-Id",
    "Helicone-Session-Id",
    "X-OpenWebUI-Chat-Id",
    "X-Session-Affinity",
    "X-OpenCode-Session",
    "X-Claude-Code-Session-Id",
    "Session-Id",
)

HASHED_KEY = re.compile(r"sha256:[0-9a-f]{64}")
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

SECONDS: JsonDict = {"unit": "s"}
DAYS: JsonDict = {"unit": "days"}
BYTES: JsonDict = {"unit": "bytes"}
REQUESTS: JsonDict = {"unit": "requests"}
NAMES: JsonDict = {"unit": "names"}

Seconds = Annotated[float, Field(gt=0, json_schema_extra=SECONDS)]
Days = Annotated[float, Field(gt=0, json_schema_extra=DAYS)]


def hash_key(key: str) -> str:
    """Return the `sha256:` form of a key: the hex digest of its UTF-8."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def _keep_hash(key: str) -> str:
    if not key.strip():
        raise PydanticCustomError("empty_key", "is empty; `transom keys new` makes a key")
    if not key.startswith("sha256:"):
        return hash_key(key)
    if not HASHED_KEY.fullmatch(key.lower()):
        raise PydanticCustomError("key_hash", "must be sha256: and 64 hex digits, as `transom keys new` prints it")
    return key.lower()


def _check_header_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not HEADER_NAME.fullmatch(name):
            raise PydanticCustomError("header_name", "holds something that is no header name")
    return names


class Section(BaseModel):
    """Part of the configuration: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Server(Section):
    """Where the proxy listens and how it stops."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 in the image.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on.")
    admin_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of their own for /metrics, /admin and health (9090 in the image); null: the same port.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        description="Processes; more than one needs PostgreSQL.",
        json_schema_extra={"unit": "processes"},
    )
    allow_anonymous: bool = Field(
        default=False,
        description="Serve requests without a key from anywhere. Otherwise only for a loopback peer with a loopback "
        "Host, no forwarding header and no Origin but those of `cors_origins`.",
    )
    sse_keepalive_s: Seconds | None = Field(
        default=3,
        description="A stream that waits for a summary gets a comment line after this long; null: off.",
        json_schema_extra=SECONDS,
    )
    drain_s: Annotated[float, Field(ge=0, json_schema_extra=SECONDS)] = Field(
        default=30, description="How long open requests may go on after SIGTERM."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description='Origins of web pages that may call the proxy, e.g. `https://chat.example`; `"*"`: any.'
    )


class Storage(Section):
    """Where conversations are kept and for how long."""

    url: str = Field(
        default="sqlite+aiosqlite:///transom.db",
        repr=False,
        description="`sqlite+aiosqlite:///FILE` or `postgresql+psycopg://…`; may be `os.environ/NAME` or `file:PATH`.",
    )
    synchronous: Literal["normal", "full"] = Field(
        default="normal", description="SQLite: `normal` survives a killed process, `full` also power loss."
    )
    commit_wait_s: Seconds = Field(default=2, description="How long the end of an answer waits for its commit.")
    timeout_s: Seconds = Field(default=2, description="Deadline of one storage call.")
    on_error: Literal["continue", "fail"] = Field(
        default="continue", description="Storage down: serve from memory with a header, or answer 503."
    )
    retention_days: Days | None = Field(
        default=None,
        description="Sessions unused for longer are erased, at start and hourly; null: never.",
        json_schema_extra=DAYS,
    )

    @field_validator("url")
    @classmethod
    def _check_scheme(cls, value: str) -> str:
        if not value.startswith(("sqlite+aiosqlite:///", "postgresql+psycopg://")):
            raise PydanticCustomError("storage_url", "must begin with sqlite+aiosqlite:/// or postgresql+psycopg://")
        return value

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is one SQLite file, which one process may use."""
        return self.url.startswith("sqlite")


class Session(Section):
    """How requests are told apart into conversations."""

    headers: tuple[str, ...] = Field(
        default=SESSION_HEADERS,
        description="Headers that carry a session key; the first present counts.",
        json_schema_extra=NAMES,
    )
    body_fields: tuple[str, ...] = Field(
        default=("metadata.session_id", "litellm_session_id"),
        description="Body fields that carry a session key, looked at after the headers.",
        json_schema_extra=NAMES,
    )
    missing: Literal["match", "memory", "reject"] = Field(
        default="match",
        description="Without a key: match the request to a stored conversation, keep it in memory only, or answer 400.",
    )
    user_headers: tuple[str, ...] = Field(
        default=("X-Transom-User", "X-OpenWebUI-User-Id"),
        description="Headers that name the user, before body safety_identifier and user; kept as a keyed hash.",
        json_schema_extra=NAMES,
    )

    _names = field_validator("headers", "user_headers")(_check_header_names)


class Limits(Section):
    """Bounds on requests and on time."""

    body_bytes: int = Field(default=33554432, ge=1, description="Largest request body.", json_schema_extra=BYTES)
    messages: int = Field(
        default=100000, ge=1, description="Most messages in one request.", json_schema_extra={"unit": "messages"}
    )
    in_flight: int = Field(default=1000, ge=1, description="Most requests at once.", json_schema_extra=REQUESTS)
    in_flight_bytes: int = Field(
        default=1073741824, ge=1, description="Most bytes of request bodies at once.", json_schema_extra=BYTES
    )
    header_s: Seconds = Field(default=10, description="A client's deadline for its request headers.")
    body_s: Seconds = Field(default=30, description="Longest silence while a client sends its body.")
    idle_s: Seconds = Field(default=75, description="Idle connections of clients are closed after this long.")
    connect_s: Seconds = Field(default=10, description="Upstream: deadline of the connection.")
    first_byte_s: Seconds = Field(default=300, description="Upstream: deadline of the first byte of an answer.")
    idle_stream_s: Seconds = Field(default=120, description="Upstream: longest silence in a stream.")
    total_s: Seconds = Field(default=3600, description="Upstream: deadline of a whole answer.")
    history_cache_mb: Annotated[float, Field(ge=0)] = Field(
        default=64, description="Memory for histories kept at hand.", json_schema_extra={"unit": "MB"}
    )


class Admin(Section):
    """Who may use /admin."""

    key: str | None = Field(
        default=None,
        repr=False,
        description="Bearer key, as `sha256:` hash, `os.environ/NAME` or `file:PATH`; null: only from this machine.",
    )

    @field_validator("key")
    @classmethod
    def _hash(cls, value: str | None) -> str | None:
        return None if value is None else _keep_hash(value)


class TenantLimits(Section):
    """Bounds of one tenant."""

    in_flight: int | None = Field(
        default=None,
        ge=1,
        description="Most requests at once in each process, else 429; null: only the proxy's own limit.",
        json_schema_extra=REQUESTS,
    )
    summary_tokens_per_day: int | None = Field(
        default=None,
        ge=0,
        description="Tokens that summaries may cost in 24 hours, in each process since its start; then cuts are made "
        "without them; null: no bound.",
        json_schema_extra={"unit": "tokens"},
    )


class TenantEntry(Section):
    """Who may call, with which models and policies."""

    keys: tuple[str, ...] = Field(
        default=(),
        repr=False,
        description="Keys, as `sha256:` hashes (`transom keys new` makes one), `os.environ/NAME` or `file:PATH`; only "
        "hashes are kept. The tenant `default` without keys is the anonymous one.",
        json_schema_extra={"unit": "keys"},
    )
    policy: str | None = Field(
        default=None, description="Policy of all models; null: the policy `default`, or the only one there is."
    )
    models: dict[str, str] | None = Field(
        default=None,
        description='Allowed models and the policy of each, `"*"` for all others; null: all models, with `policy`.',
    )
    may_override: tuple[Literal["policy", "off", "audit"], ...] = Field(
        default=(), description="What a request may choose by header: `policy`, `off`, `audit`."
    )
    relay: Literal["stateless", "none", "all"] | tuple[str, ...] = Field(
        default="stateless",
        description="Other endpoints that are relayed: those that keep nothing, none, all, or also the paths of a list "
        "(`files` is all that is below it, too).",
    )
    store: Literal["full", "summaries", "none"] = Field(
        default="full", description="What is stored: everything; ids, counts, cuts and summaries without text; nothing."
    )
    retention_days: Days | None = Field(
        default=None, description="Overrides `storage.retention_days`; null: that one.", json_schema_extra=DAYS
    )
    upstream_key: Literal["config", "client"] = Field(
        default="config",
        description="Whose key goes upstream: the model's, or the client's own bearer (summaries included; the "
        "tenant's key then comes in X-Transom-Key).",
    )
    limits: TenantLimits = Field(default_factory=TenantLimits)

    @field_validator("relay", mode="wrap")
    @classmethod
    def _say_relay(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("relay", "must be stateless, none, all or a list of paths") from None

    @field_validator("keys")
    @classmethod
    def _hash(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_keep_hash(key) for key in value)


class Config(Section):
    """The whole of config.yaml."""

    server: Server = Field(default_factory=Server)
    storage: Storage = Field(default_factory=Storage)
    session: Session = Field(default_factory=Session)
    limits: Limits = Field(default_factory=Limits)
    admin: Admin = Field(default_factory=Admin)
    model_list: tuple[ModelEntry, ...] = Field(
        default=(), description="The models clients may ask for, in LiteLLM's own shape."
    )
    policies: dict[str, Policy] = Field(
        default_factory=lambda: {"default": Policy.model_validate({"preset": "chat"})},
        description="Named policies; without any there is `default` with the preset chat.",
    )
    include: tuple[str, ...] = Field(
        default=(), description="Further files with `model_list`, `policies` and `tenants`; may hold wildcards."
    )
    tenants: dict[str, TenantEntry] = Field(
        default_factory=lambda: {"default": TenantEntry()},
        description="Who may call; without any there is `default` without keys.",
    )

    _remarks: tuple[str, ...] = PrivateAttr(default=())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is valid and better written otherwise: a sentence each, with its place."""
        return self._remarks

    def remarked(self, remarks: Iterable[str]) -> Self:
        """Return the same configuration with these remarks."""
        other = self.model_copy()
        other._remarks = tuple(remarks)  # noqa: SLF001  (an instance of this very class)
        return other
