"""One entry of `model_list` in LiteLLM's own shape: what is honoured, what has no effect here, what is refused.

It knows nothing of files, other entries or how a model is called.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

Provider = Literal["direct", "demo", "litellm"]

OWN_PROVIDER = "transom"
DEMO_MODEL = f"{OWN_PROVIDER}/demo"

# Credentials and places of single providers, handed to litellm as they are (names: litellm's CredentialLiteLLMParams).
PROVIDER_PREFIXES = (
    "aws_", "azure_", "vertex_", "watsonx_", "anthropic_", "sagemaker_", "databricks_", "snowflake_", "oci_",
    "github_copilot_", "token_exchange_", "openai_identity_", "openai_service_account_",
)  # fmt: skip
_PROVIDER_PARAMS = """
api_version tenant_id client_id client_secret region_name drop_params additional_drop_params allowed_openai_params
project_id space_id token ssl_verify use_chat_completions_api responses_api_version adapter_id base_model hf_model_name
merge_reasoning_content_in_choices supports_system_message ensure_alternating_roles bedrock_tags data_residency
fireworks_forward_user_id thought_signature_in_tool_call_id chatgpt_auth_file use_xai_oauth
"""
PROVIDER_PARAMS = frozenset(_PROVIDER_PARAMS.split())
# What LiteLLM's own proxy does with a deployment: routing, quotas, bookkeeping. Transom is no router and does not bill.
_IDLE_PARAMS = """
timeout stream_timeout max_retries num_retries rpm tpm itpm otpm rpd tpd weight order max_parallel_requests tags
tag_regex cooldown_time caching use_in_pass_through litellm_trace_id max_file_size_mb
keepalive_seconds allow_client_keepalive_override default_api_key_tpm_limit default_api_key_rpm_limit
daily_reset_time provider_affinity_header timeout_by_service_tier stream_timeout_by_service_tier
model_info tiered_pricing output_vector_size request_timeout retry_policy max_fallbacks allowed_model_region
allow_legacy_cloud_file_ids bucket_name vector_store_id turn_off_message_logging
"""
IDLE_PARAMS = frozenset(_IDLE_PARAMS.split())
# Prices, where LiteLLM would log to, and its stores of files and vectors.
IDLE_PREFIXES = (
    "langfuse_", "langsmith_", "arize_", "dd_", "newrelic_", "posthog_", "signoz_", "wandb_", "weave_", "humanloop_",
    "gcs_", "s3_", "milvus_", "valkey_", "fedramp_", "regional_",
)  # fmt: skip
_REQUEST_PARAMS = """
temperature top_p top_k min_p n stop seed max_tokens max_completion_tokens presence_penalty frequency_penalty
logit_bias logprobs top_logprobs response_format tools tool_choice parallel_tool_calls stream stream_options user
metadata reasoning_effort thinking modalities prediction service_tier store verbosity messages extra_body
cache_control_injection_points enable_prompt_caching litellm_system_prompt safety_identifier prompt_cache_key
prompt_cache_retention web_search_options functions function_call audio
"""
REQUEST_PARAMS = frozenset(_REQUEST_PARAMS.split())
# What not even `passthrough_fields` can let through a request besides the keys above.
NEVER_PASSED = frozenset(
    {"extra_body", "extra_query", "client", "http_client", "model_list", "messages", "model_alias_map"}
)
REFUSED_PARAMS = {
    "litellm_credential_name": "names a credential of LiteLLM's own database; write api_key here",
    "mock_response": "would answer without a model; use the model transom/demo for that",
    "max_budget": "is a spending limit that is not kept here; remove it and keep it at the provider",
    "budget_duration": "belongs to a spending limit that is not kept here; remove it and keep it at the provider",
    "configurable_clientside_auth_params": "would let a client choose where its text and the key are sent; remove it",
    "fallbacks": "would route to another model; Transom is no router, put one in front of or behind it",
    "context_window_fallback_dict": "would route to another model; Transom is no router, put one in front of it",
    "silent_model": "would send every request to a second model; Transom is no router",
    "guardrails": "would not be run here; remove it, and keep guardrails in front of or behind Transom",
    "prompt_id": "would take its prompt from a store of LiteLLM's; write the prompt in the client",
    "headers": "is another name of extra_headers; write that",
    "default_headers": "is another name of extra_headers; write that",
    "provider_specific_header": "is headers for one provider; write extra_headers",
    "use_litellm_proxy": "would route through another proxy; write its address as api_base of an openai/ model",
}
REFUSED_PREFIXES = ("auto_router_", "complexity_router_", "adaptive_router_", "quality_router_", "switchyard_router_")
_IDLE_INFO = """
id mode tier db_model updated_at updated_by created_at created_by team_id team_public_model_name blocked
discoverable access_groups access_windows litellm_provider max_tokens source deprecation_date
supported_endpoints supported_modalities supported_output_modalities supported_environments description metadata
rpm tpm output_vector_size health_check_model health_check_timeout health_check_max_tokens
disable_background_health_check version pricing_provider key
allow_fail_open enable_tag_filtering enforce_supported_endpoints internal_router_model member_auto_router
max_embedding_batch_size supported_audio_formats provider_specific_entry web_search_billing_unit vertex_ai_audio_api
uses_embed_content use_openai_responses_path bedrock_converse_supports_strict_tools off_peak_pricing tiered_pricing
bedrock_output_config_effort_ceiling default_reasoning_effort search_free_requests prompt_cache_min_tokens
"""
IDLE_INFO = frozenset(_IDLE_INFO.split())
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
HEADER_VALUE = re.compile(r"[^\r\n\0]*")
FRAMING = frozenset({"connection", "content-length", "host", "transfer-encoding"})  # set for each request
INFO_PREFIXES = ("supports_", "ptu_", "reasoning_", "thinking_", "token_count_", "fedramp_", "regional_")


def _idle_info(key: str) -> bool:
    return key in IDLE_INFO or "cost" in key or key.startswith(INFO_PREFIXES)


class LiteLLMParams(BaseModel):
    """Where a model's requests go and with which key; LiteLLM's `litellm_params`."""

    model_config = ConfigDict(frozen=True, extra="allow", json_schema_extra={"additionalProperties": True})
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    model: str = Field(
        min_length=1,
        description="`provider/model`: `openai/…` goes straight to an OpenAI-compatible endpoint, `transom/demo` is a "
        "built-in offline model, others go through litellm. `openai/*` passes the client's name on.",
    )
    api_key: str | None = Field(
        default=None,
        repr=False,
        description="Key sent upstream, as `os.environ/NAME`, `file:PATH` or itself; `none`: no key.",
    )
    api_base: str | None = Field(
        default=None, description="Address of the endpoint, `/v1` included; for `openai/…` without one, OpenAI's own."
    )
    base_url: str | None = Field(default=None, description="Another name of `api_base`.")
    custom_llm_provider: str | None = Field(
        default=None, description="The provider, where `model` does not begin with it."
    )
    organization: str | None = Field(default=None, description="OpenAI organization the key acts for.")
    extra_headers: dict[str, str] = Field(
        default_factory=dict, repr=False, description="Headers added to every upstream request of this model."
    )

    @field_validator("api_key")
    @classmethod
    def _read_none(cls, value: str | None) -> str | None:
        # LiteLLM's users write a placeholder because its client insists on a key.
        return None if value is not None and value.lower() == "none" else value

    @field_validator("api_base", "base_url")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise PydanticCustomError("address", "must be an address that begins with http:// or https://")
        return value.rstrip("/") if value is not None else None

    @field_validator("extra_headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not HEADER_NAME.fullmatch(name) or name.lower() in FRAMING or not HEADER_VALUE.fullmatch(text):
                raise PydanticCustomError(
                    "header", "must be headers that can be sent, and none that frames the request"
                )
        return value

    @model_validator(mode="after")
    def _check_both_addresses(self) -> Self:
        if self.api_base and self.base_url and self.api_base != self.base_url:
            raise PydanticCustomError("address", "api_base and base_url differ; write only one of them")
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # Further parameters may hold secrets under any name.
        return ((name, value) for name, value in super().__repr_args__() if name in type(self).model_fields)

    @property
    def provider(self) -> Provider:
        """Which adapter serves this model."""
        if self.model == DEMO_MODEL:
            return "demo"
        return "direct" if self.provider_name == "openai" else "litellm"

    @property
    def provider_name(self) -> str | None:
        """LiteLLM's name of the provider, or None where only litellm itself can tell."""
        if self.custom_llm_provider:
            return self.custom_llm_provider
        prefix, slash, _ = self.model.partition("/")
        return prefix if slash else None

    @property
    def address(self) -> str | None:
        """The endpoint's address as written."""
        return self.api_base or self.base_url

    @property
    def provider_params(self) -> dict[str, JsonValue]:
        """The provider's own parameters, for litellm."""
        return {key: value for key, value in self._extra.items() if _is_provider_param(key)}

    @property
    def idle_params(self) -> tuple[str, ...]:
        """The parameters that LiteLLM's proxy would use and Transom does not."""
        direct = self.provider != "litellm"
        return tuple(k for k in self._extra if not _is_provider_param(k) or direct)

    @property
    def _extra(self) -> dict[str, JsonValue]:
        return self.__pydantic_extra__ or {}


def _is_provider_param(key: str) -> bool:
    return key in PROVIDER_PARAMS or key.startswith(PROVIDER_PREFIXES)


def refusal(key: str) -> str | None:
    """Say why a key of `litellm_params` is refused, or None where it is not."""
    if key in REFUSED_PARAMS:
        return REFUSED_PARAMS[key]
    if key in REQUEST_PARAMS:
        return "would be added to every request, and Transom adds no field to a request; set it in the client"
    if key.startswith(REFUSED_PREFIXES):
        return "would route to another model; Transom is no router, put one in front of or behind it"
    return None


def known_param(key: str) -> bool:
    """Tell whether a key of `litellm_params` is LiteLLM's, honoured here or not."""
    idle = key in IDLE_PARAMS or key.startswith(IDLE_PREFIXES) or "_cost" in key or key.startswith("cost_")
    return idle or key in LiteLLMParams.model_fields or _is_provider_param(key)


def _steers(field: str) -> bool:
    """Tell whether a field of a request would say where it goes, with which key, or how litellm treats it."""
    ours = field in LiteLLMParams.model_fields or (refusal(field) is not None and field not in REQUEST_PARAMS)
    return ours or field in NEVER_PASSED or (known_param(field) and field not in LiteLLMParams.model_fields)


class ModelInfo(BaseModel):
    """What is known about a model; LiteLLM's `model_info` and Transom's own keys."""

    model_config = ConfigDict(frozen=True, extra="allow", json_schema_extra={"additionalProperties": True})
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)

    max_input_tokens: int | None = Field(
        default=None,
        ge=1,
        description="The model's window; null: from litellm's model map, else learned from the first overflow.",
        json_schema_extra={"unit": "tokens"},
    )
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Longest answer of the model; null: from litellm's model map.",
        json_schema_extra={"unit": "tokens"},
    )
    base_model: str | None = Field(
        default=None,
        description="Name under which litellm's model map knows the model, where its own name is not there.",
    )
    forward_headers: tuple[str, ...] = Field(
        default=(),
        description="Further request headers of the client that go upstream.",
        json_schema_extra={"unit": "names"},
    )
    passthrough_fields: tuple[str, ...] = Field(
        default=(),
        description="Further request fields, such as `top_k`, that go through litellm; to an `openai/…` endpoint every "
        "field goes.",
        json_schema_extra={"unit": "names"},
    )
    output_limit_param: Literal["max_tokens", "max_completion_tokens"] | None = Field(
        default=None, description="Which parameter bounds the answer in Transom's own summary calls; null: tried out."
    )
    usage_in_stream: bool = Field(
        default=True,
        description="Whether the endpoint takes `stream_options.include_usage`, so that streams are metered.",
    )
    supports_reasoning: bool | None = Field(
        default=None,
        description="Whether the model reasons, so that a summary call leaves room for it; null: from the map.",
    )

    @field_validator("forward_headers")
    @classmethod
    def _check_headers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        private = {"authorization", "cookie", "proxy-authorization", "x-api-key", "host", "content-length"}
        names = tuple(name.lower() for name in value)
        if found := private.intersection(names):
            raise PydanticCustomError(
                "forward_headers", "holds {name}, which is never sent upstream", {"name": min(found)}
            )
        return names

    @field_validator("passthrough_fields")
    @classmethod
    def _check_fields(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if steering := [name for name in value if _steers(name)]:
            raise PydanticCustomError(
                "passthrough_fields", "holds {name}, which would let a client steer the proxy", {"name": steering[0]}
            )
        return value

    @property
    def idle_keys(self) -> tuple[str, ...]:
        """The keys that look as if they bounded something and have no effect here."""
        # max_tokens is often written where the window is meant; the rest of LiteLLM's keys claim nothing.
        return ("max_tokens",) if "max_tokens" in (self.__pydantic_extra__ or {}) else ()


def known_info(key: str) -> bool:
    """Tell whether a key of `model_info` is LiteLLM's or Transom's."""
    return key in ModelInfo.model_fields or _idle_info(key)


class ModelEntry(BaseModel):
    """One model a client may ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_name: str = Field(
        min_length=1, description='The name clients ask for; `"*"` passes any name through (its metrics say `other`).'
    )
    litellm_params: LiteLLMParams
    model_info: ModelInfo = Field(default_factory=ModelInfo)

    @field_validator("model_name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if "*" in value and value != "*":
            raise PydanticCustomError("model_name", 'must be a whole name, or "*" alone for any name')
        return value

    @model_validator(mode="after")
    def _check_wildcard(self) -> Self:
        target = self.litellm_params.model
        if target == "*" and self.litellm_params.provider == "litellm":
            raise PydanticCustomError("wildcard", "names no provider for any name; write one, as in openai/*")
        if "*" in target and (self.model_name != "*" or not target.endswith("*") or target.count("*") > 1):
            raise PydanticCustomError("wildcard", 'has a * in litellm_params.model, which only model_name "*" may have')
        return self
