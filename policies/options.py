"""What a policy says: its keys, defaults and bounds; it knows no files, no models and no way of cutting."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from transom.policies.presets import PRESETS
from transom.policies.strategy import TRIMMERS, check_strategy, in_order

HARDLY_A_CONVERSATION = 500
"""Tokens: the smallest summary takes most of them, or one question and a short answer do."""


class Policy(BaseModel):
    """How one conversation is cut to fit.

    Validate a mapping to get one: a `preset` is filled in first, the keys beside it override it, and which keys were
    written is remembered in `written`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: Literal["voice", "chat", "agent", "recall"] | None = Field(
        default=None, description="A set of better defaults for one purpose; the keys beside it override it."
    )
    strategy: str | tuple[str, ...] = Field(
        default="context_window",
        description="One trimmer or a list of them, run in order: "
        + ", ".join(f"`{name}`" for name in TRIMMERS)
        + ", or your own as `package.module:Class`.",
    )
    enforce: Literal["on", "audit", "off"] = Field(
        default="on",
        description="`audit` decides, records and reports but forwards untouched, without a model call; "
        "`off` does nothing.",
    )
    percent: float = Field(
        default=100,
        ge=0,
        le=100,
        description="Share of threads (by hash) the policy is enforced on; the rest is a control group.",
        json_schema_extra={"unit": "%"},
    )
    max_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        default=None,
        description="Limit of the messages sent, preamble and summary included; auto or null: the model's window.",
        json_schema_extra={"unit": "tokens"},
    )
    max_context_items: int | None = Field(
        default=None,
        ge=1,
        description="Limit of the items sent: messages with content, tool calls, tool results.",
        json_schema_extra={"unit": "items"},
    )
    keep_recent_turns: int = Field(
        default=3,
        ge=1,
        description="Newest turns kept verbatim, the current one counted.",
        json_schema_extra={"unit": "turns"},
    )
    keep_recent_iterations: int = Field(
        default=4,
        ge=0,
        description="Newest rounds of the current turn that are removed last.",
        json_schema_extra={"unit": "iterations"},
    )
    keep_verbatim: Literal["turns", "fill"] = Field(
        default="turns",
        description="`turns` folds all but the recent turns at once; `fill` folds just enough, oldest first, "
        "to come down to `trim_to`.",
    )
    keep_first_turns: int = Field(
        default=0,
        ge=0,
        description="The user messages (only these) of the first turns that are never removed.",
        json_schema_extra={"unit": "turns"},
    )
    trim_to: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Low-water mark: a cut goes down to this share of the limit that was exceeded.",
        json_schema_extra={"unit": "share"},
    )
    compact_at: float | None = Field(
        default=0.8,
        gt=0,
        le=1,
        description="Share of the limit from which a summary is made in the background; null: never.",
        json_schema_extra={"unit": "share"},
    )
    max_tool_calls_per_turn: int | None = Field(
        default=10,
        ge=1,
        description="Tool calls allowed after one user message; null: no cap. A preset sets its own.",
        json_schema_extra={"unit": "calls"},
    )
    max_tool_rounds_per_turn: int | None = Field(
        default=None,
        ge=1,
        description="Assistant messages with tool calls allowed after one user message; null: no cap.",
        json_schema_extra={"unit": "rounds"},
    )
    max_repeated_tool_calls: int | None = Field(
        default=None,
        ge=1,
        description="Consecutive rounds allowed with the same calls, arguments and results; null: no cap.",
        json_schema_extra={"unit": "rounds"},
    )
    on_tool_limit: Literal["final_answer", "error"] = Field(
        default="final_answer", description="At a cap: ask the model for a final answer, or answer 400."
    )
    tool_limit_note: bool = Field(default=True, description="At a cap, tell the model so in one note at the end.")
    summary_model: str | None = Field(
        default=None,
        min_length=1,
        description="Which of the tenant's models writes summaries; null: the request's own.",
    )
    summary_role: Literal["auto", "system", "developer", "user", "merged"] = Field(
        default="auto",
        description="Role of the summary message; `merged` appends it to the last system message; `auto` is system, "
        "developer where the preamble's last message is one, merged once a model refused it.",
    )
    summary_max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Size of a summary's text; null: an eighth of the limit within 256 and 2,048, less under a large "
        "preamble; without a limit 1,024.",
        json_schema_extra={"unit": "tokens"},
    )
    summary_wait: float = Field(
        default=10,
        ge=0,
        description="How long a request over its limit waits for a summary; 0: cut now.",
        json_schema_extra={"unit": "s"},
    )
    summary_timeout: float = Field(
        default=60, gt=0, description="Deadline of the summary call itself.", json_schema_extra={"unit": "s"}
    )
    constraints_max_tokens: int = Field(
        default=400,
        ge=0,
        description="The user's own constraints, carried verbatim through every summary; the oldest go first.",
        json_schema_extra={"unit": "tokens"},
    )
    min_span_tokens: int = Field(
        default=256,
        ge=0,
        description="Smaller spans are not folded in the background.",
        json_schema_extra={"unit": "tokens"},
    )
    mid_system: Literal["keep", "ordinary"] = Field(
        default="keep", description="Whether system messages after the first turn are protected or ordinary."
    )
    on_unfit: Literal["forward", "clip", "error"] = Field(
        default="forward",
        description="When only protected messages remain and are still too much: forward them, shorten them, "
        "or answer 400.",
    )
    reserve_tokens: int = Field(
        default=4096,
        ge=0,
        description="Kept free in the model's window for the answer when the request names no output limit.",
        json_schema_extra={"unit": "tokens"},
    )
    keep_last: int = Field(
        default=10,
        ge=1,
        description="Iterations that `count` and `summarize` keep.",
        json_schema_extra={"unit": "iterations"},
    )
    keep_tool_results: int = Field(
        default=3,
        ge=0,
        description="Newest tool results that `clear_tool_results` leaves alone.",
        json_schema_extra={"unit": "results"},
    )
    exclude_tools: tuple[str, ...] = Field(
        default=(),
        description="Tools whose results `clear_tool_results` leaves alone.",
        json_schema_extra={"unit": "names"},
    )
    clear_at_least: int = Field(
        default=0,
        ge=0,
        description="`clear_tool_results` clears this much at once or nothing; where another trimmer follows, at least "
        "most of the way to `trim_to`.",
        json_schema_extra={"unit": "tokens"},
    )
    recall_tokens: int = Field(
        default=512,
        ge=1,
        description="Room set aside for the messages that `recall` brings back.",
        json_schema_extra={"unit": "tokens"},
    )

    _written: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="wrap")
    @classmethod
    def _merge_preset(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, Mapping):
            return handler(value)
        preset = value.get("preset")
        base = PRESETS.get(preset, {}) if isinstance(preset, str) else {}
        policy = handler({**base, **value})
        policy._written = frozenset(map(str, value))  # noqa: SLF001  (an instance of this very class)
        return policy

    @field_validator("enforce", mode="before")
    @classmethod
    def _read_bare_switch(cls, value: object) -> object:
        # A bare on or off is a boolean in YAML 1.1.
        return {True: "on", False: "off"}[value] if isinstance(value, bool) else value

    @field_validator("max_tokens", mode="wrap")
    @classmethod
    def _say_max_tokens(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("max_tokens", "must be a whole number of at least 1, auto or null") from None

    @field_validator("strategy", mode="wrap")
    @classmethod
    def _say_strategy(cls, value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("strategy", "must be the name of a trimmer or a list of names") from None

    @field_validator("strategy")
    @classmethod
    def _check_strategy(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        check_strategy(value)
        return value

    @property
    def written(self) -> frozenset[str]:
        """The keys that somebody wrote, the preset's not among them."""
        return self._written

    @cached_property
    def trimmers(self) -> tuple[str, ...]:
        """The trimmers in the order they run: `context_window` spelled out, `recall` last, `none` left out."""
        return in_order(self.strategy)

    def reserve_within(self, window: int) -> int:
        """Return the tokens kept free for an answer in a window: at most half, or messages would have no room."""
        return min(self.reserve_tokens, window // 2)

    @property
    def effective_tool_calls_cap(self) -> int | None:
        """Tool calls a turn may hold; None is no cap. Under strategy none a cap counts only when written."""
        return self._cap("max_tool_calls_per_turn", self.max_tool_calls_per_turn)

    @property
    def effective_tool_rounds_cap(self) -> int | None:
        """Tool rounds a turn may hold; None is no cap. Under strategy none a cap counts only when written."""
        return self._cap("max_tool_rounds_per_turn", self.max_tool_rounds_per_turn)

    @property
    def effective_repeated_calls_cap(self) -> int | None:
        """Equal rounds in a row a turn may hold; None is no cap. Under strategy none a cap counts only when written."""
        return self._cap("max_repeated_tool_calls", self.max_repeated_tool_calls)

    def _cap(self, key: str, value: int | None) -> int | None:
        return value if self.trimmers or key in self.written else None

    def warnings(self) -> tuple[str, ...]:
        """Say what in this policy may surprise its author, one sentence each."""
        found: list[str] = []
        unwritten = self.preset is None and "max_tool_calls_per_turn" not in self.written
        if unwritten and self.effective_tool_calls_cap is not None:
            found.append(
                f"max_tool_calls_per_turn is not set: the default, {self.max_tool_calls_per_turn} a turn, holds; "
                "write a number, or null for no cap"
            )
        if self.trimmers and isinstance(self.max_tokens, int) and self.max_tokens < HARDLY_A_CONVERSATION:
            found.append(
                f"max_tokens {self.max_tokens} hardly holds one question and its answer, so next to nothing of a "
                "conversation is sent; most need some thousands"
            )
        if self.trimmers == ("token_budget",) and self.max_tokens is None and self.max_context_items is not None:
            found.append("token_budget knows no item limit, so max_context_items has no effect; set max_tokens")
        if self.compact_at is not None and self.compact_at <= self.trim_to and "compress" in self.trimmers:
            found.append(
                f"compact_at {self.compact_at:g} is not above trim_to {self.trim_to:g}, "
                "so a summary is made in the background right after every cut"
            )
        return tuple(found)
