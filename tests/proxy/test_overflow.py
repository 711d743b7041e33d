"""Refusals of a prompt that is too long, as people met them; what is none; and what a view must come down to."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.policies.view import Size
from transom.proxy.budgets import Budget
from transom.proxy.overflow import MOST_MODELS, REMEMBERED_S, LearnedWindows, Overflow, read_overflow, target

REFUSALS: dict[str, tuple[str, Overflow]] = {
    # OpenAI and what follows it
    "openai, completions": (
        "This model's maximum context length is 4097 tokens, however you requested 4203 tokens (3703 in your "
        "prompt; 500 for the completion). Please reduce your prompt; or completion length.",
        Overflow(4097, 3703, 500),
    ),
    "openai, messages": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens. "
        "Please reduce the length of the messages.",
        Overflow(8192, 8545),
    ),
    "openai, messages and functions": (
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 5102 tokens "
        "(4102 in the messages, 1000 in the functions). Please reduce the length of the messages or "
        "functions.",
        Overflow(4097, 5102),
    ),
    "azure, with an answer": (
        "This model's maximum context length is 16384 tokens. However, you requested 17745 tokens (15000 in "
        "the messages, 745 in the functions, and 2000 in the completion). Please reduce the length of the "
        "messages, functions, or completion.",
        Overflow(16384, 15745, 2000),
    ),
    "openai, newer": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. "
        "Please reduce the length of the messages.",
        Overflow(272000, 509178),
    ),
    "openai, responses": (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        Overflow(None, None),
    ),
    "deepseek": (
        "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 "
        "in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        Overflow(131072, 122942, 8192),
    ),
    "openrouter": (
        "This endpoint's maximum context length is 65536 tokens. However, you requested about 92208 tokens "
        "(60833 of text input, 10042 of tool input, 21333 in the output). Please reduce the length of either "
        'one, or use the "middle-out" transform to compress your prompt automatically.',
        Overflow(65536, 70875, 21333),
    ),
    "openrouter, input alone": (
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens "
        "(42832 of text input). Please reduce the length of either one.",
        Overflow(32768, 42832),
    ),
    "groq": (
        "Please reduce the length of the messages or completion.",
        Overflow(None, None),
    ),
    "cerebras": (
        "Please reduce the length of the messages or completion. Current length is 9120 while limit is 8192",
        Overflow(8192, 9120),
    ),
    "xai": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        Overflow(131072, 537812),
    ),
    "copilot": (
        "prompt token count of 391491 exceeds the limit of 128000",
        Overflow(128000, 391491),
    ),
    # Anthropic
    "anthropic": (
        "prompt is too long: 201000 tokens > 200000 maximum",
        Overflow(200000, 201000),
    ),
    "anthropic, with the answer": (
        "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000, decrease input length "
        "or `max_tokens` and try again",
        Overflow(200000, 199000, 8000),
    ),
    # Google, Amazon, IBM
    "gemini": (
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        Overflow(1048576, 1200293),
    ),
    "gemini, without a size": (
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        Overflow(1048576, None),
    ),
    "vertex": (
        "Unable to submit request because the input token count is 135538 but model only supports up to "
        "131072. Reduce the input token count and try again. You can also use the CountTokens API to "
        "calculate prompt token count and billable characters.",
        Overflow(131072, 135538),
    ),
    "bedrock": (
        "Input is too long for requested model.",
        Overflow(None, None),
    ),
    "bedrock, with numbers": (
        "Too many input tokens. Max input tokens: 128000, request input token count: 140000",
        Overflow(128000, 140000),
    ),
    "bedrock nova": (
        "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds "
        "maximum length.",
        Overflow(None, None),
    ),
    "watsonx": (
        "Invalid input argument for Model 'meta-llama/llama-2-70b-chat': the number of input tokens 4098 "
        "cannot exceed the total tokens limit 4096 for this model",
        Overflow(4096, 4098),
    ),
    # Mistral, Cohere
    "mistral": (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        Overflow(32768, 40000),
    ),
    "cohere": (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using "
        "a shorter prompt, or enabling prompt truncating.",
        Overflow(4081, 4292),
    ),
    "cohere, by how much": (
        "too many tokens: size limit exceeded by 713295 tokens. Try using shorter or fewer inputs. The limit "
        "for this model is 288000 tokens.",
        Overflow(288000, None),
    ),
    "cohere, by how much only": (
        "too many tokens: minimal context could not be added to prompt (size limit exceeded by 280 tokens)",
        Overflow(None, None),
    ),
    # Hosts of open models
    "together": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 7000 `inputs` "
        "tokens and 2000 `max_new_tokens`",
        Overflow(8193, 7000, 2000),
    ),
    "tgi": (
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
        Overflow(4096, 5000),
    ),
    "fireworks": (
        "The prompt is too long: 140000, model maximum context length: 131071",
        Overflow(131071, 140000),
    ),
    "deepinfra": (
        "Requested input length 39818 exceeds maximum input length 32767 (via DeepInfra)",
        Overflow(32767, 39818),
    ),
    "replicate": (
        "E1002 PromptTooLong: Prompt length exceeds maximum input length",
        Overflow(None, None),
    ),
    "poolside": (
        "Input length 131,393 exceeds the maximum allowed input length of 131,040 tokens.",
        Overflow(131040, 131393),
    ),
    "bedrock llama": (
        "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt",
        Overflow(8192, None),
    ),
    "salesforce": (
        "Request input tokens exceed model token limit. Reduce the input size.",
        Overflow(None, None),
    ),
    # From China
    "qwen": (
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]",
        Overflow(258048, None),
    ),
    "moonshot": (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
        Overflow(262144, 291351),
    ),
    "moonshot, older": (
        "Input token length too long",
        Overflow(None, None),
    ),
    "zhipu": (
        "Prompt 超长",
        Overflow(None, None),
    ),
    "zhipu, abroad": (
        "Prompt exceeds max length",
        Overflow(None, None),
    ),
    "minimax": (
        "invalid params, context window exceeds limit (2013)",
        Overflow(None, None),
    ),
    "doubao": (
        "Total tokens of image and text exceed max message tokens. Request id: 0217",
        Overflow(None, None),
    ),
    # Servers of one's own
    "vllm 0.10": (
        "This model's maximum context length is 2000 tokens. However, your request has 2031 input tokens. "
        "Please reduce the length of the input messages.",
        Overflow(2000, 2031),
    ),
    "vllm 0.10, with the answer": (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is "
        "65536 tokens and your request has 34006 input tokens (32000 > 65536 - 34006).",
        Overflow(65536, 34006, 32000),
    ),
    "vllm 0.14": (
        "You passed 1193 input tokens and requested 7000 output tokens. However, the model's context length "
        "is only 8192 tokens, resulting in a maximum input length of 1192 tokens. Please reduce the length "
        "of the input prompt. (parameter=input_tokens, value=1193)",
        Overflow(8192, 1193, 7000),
    ),
    "vllm 0.18": (
        "This model's maximum context length is 262144 tokens. However, you requested 16384 output tokens "
        "and your prompt contains at least 245761 input tokens, for a total of at least 262145 tokens. "
        "Please reduce the length of the input prompt or the number of requested output tokens. "
        "(parameter=input_tokens, value=245761)",
        Overflow(262144, 245761, 16384),
    ),
    "vllm 0.18, characters": (
        "This model's maximum context length is 8192 tokens. However, you requested 500 output tokens and "
        "your prompt contains 900000 characters (more than 61536 characters, which is the upper bound for "
        "7692 input tokens). Please reduce the length of the input prompt.",
        Overflow(8192, None, 500),
    ),
    "vllm, decoder": (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        Overflow(4096, 5000),
    ),
    "vllm, multimodal": (
        "The prompt (total length 5000) is too long to fit into the model (context length 4096). Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
        Overflow(4096, 5000),
    ),
    "sglang": (
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        Overflow(40960, 61709),
    ),
    "sglang, with the answer": (
        "Requested token count exceeds the model's maximum context length of 40960 tokens. You requested a "
        "total of 45000 tokens: 37000 tokens from the input messages and 8000 tokens for the completion. "
        "Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
        Overflow(40960, 37000, 8000),
    ),
    "tensorrt": (
        "The sum of prompt length (50857.0), query length (0) should not exceed max_num_tokens (32768)",
        Overflow(32768, 50857),
    ),
    "tensorrt, with the answer": (
        "The sum of prompt length (2001.0) and query length (0) max_tokens (100) should not exceed max_seq_len (2048)",
        Overflow(2048, 2001, 100),
    ),
    "triton": (
        "Cannot process new request: Prompt length (5056) exceeds maximum input length (2048).",
        Overflow(2048, 5056),
    ),
    "llama.cpp, newer": (
        "request (67311 tokens) exceeds the available context size (65536 tokens), try increasing it",
        Overflow(65536, 67311),
    ),
    "llama-cpp-python": (
        "Requested tokens (2285) exceed context window of 2048",
        Overflow(2048, 2285),
    ),
    "ollama": (
        "prompt too long; exceeded max context length by 1200 tokens",
        Overflow(None, None),
    ),
    "ollama, embeddings": (
        "the input length exceeds the context length",
        Overflow(None, None),
    ),
    "ollama, hosted": (
        "prompt too long, limit is 202752 tokens",
        Overflow(202752, None),
    ),
    "a gateway": (
        "The prompt contains too many tokens.",
        Overflow(None, None),
    ),
    "lm studio": (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with "
        "context length of only 4096 tokens, which is not enough.",
        Overflow(4096, 5000),
    ),
    "lm studio, newer": (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: "
        "10978 >= n_ctx: 8192). Try to load the model with a larger context length.",
        Overflow(8192, 10978),
    ),
    "ds4": (
        "Prompt has 32769 tokens, but the configured context size is 32768 tokens",
        Overflow(32768, 32769),
    ),
}

OTHERS = [
    # rates and money
    "Request too large for model `llama3-70b-8192` in organization `org_1` service tier `on_demand` on tokens per "
    "minute (TPM): Limit 6000, Requested 7142, please reduce your message size and try again.",
    "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 40000. The "
    "input or output tokens must be reduced in order to run successfully.",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
    "Too many tokens, please wait before trying again.",
    "Too many tokens per day, please wait before trying again.",
    "This request requires more credits, or fewer max_tokens. You requested up to 65535 tokens, but can only afford 20",
    "You exceeded your current quota, please check your plan and billing details.",
    # the answer alone
    "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
    "max_tokens: 10000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-sonnet-20241022",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "Range of max_tokens should be [1, 2000]",
    "Input validation error: `max_new_tokens` must be <= 4096. Given: 5000",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model - received 8192",
    "max_tokens (10000) cannot exceed 8192. Please reduce the length of max output tokens generated.",
    "max_tokens=9000 cannot be greater than max_model_len=max_total_tokens=8192. Please request fewer output tokens.",
    "Unable to submit request because it has a maxOutputTokens value of 10000 but the supported range is from 1 "
    "(inclusive) to 8193 (exclusive). Update the value and try again.",
    "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher "
    "max_tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens "
    "and your request has 203 input tokens (8192 > 8192 - 203).",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text "
    "input, 131072 in the output). Please reduce the length of either one.",
    # bytes, images, tools
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "messages.4.content.0.image.source.base64.data: image dimensions exceed max allowed size: 8000 pixels",
    "Request exceeded the allowed number of images",
    "Request exceeds the maximum size",
    "Request payload size exceeds the limit: 20971520 bytes.",
    "Request payload size (30000000) exceeds the size limit of 20971520 bytes.",
    "<html><head><title>413 Request Entity Too Large</title></head></html>",
    "Invalid 'messages[5].content': string too long. Expected a string with maximum length 10485760, but got a string "
    "with length 20000000 instead.",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 140.",
    # values
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 200 instead.",
    "`max_tokens` must be greater than `thinking.budget_tokens`.",
    "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    "Unrecognized request argument supplied: context_size",
    "This model does not support tools.",
    "max_tokens 超出范围",
]


def refusal(message: str, **more: object) -> bytes:
    """Return an error body as OpenAI writes it."""
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None} | more}).encode()


@pytest.mark.parametrize("provider", REFUSALS)
def test_a_prompt_that_is_too_long(provider: str) -> None:
    message, said = REFUSALS[provider]
    assert read_overflow(400, refusal(message)) == said


@pytest.mark.parametrize("message", OTHERS)
def test_another_complaint(message: str) -> None:
    assert read_overflow(400, refusal(message)) is None


@pytest.mark.parametrize("status", [400, 413, 422, 500])
@pytest.mark.parametrize("code", [400, 500, "400"])
def test_numbers_that_stand_in_fields_of_their_own(status: int, code: object) -> None:
    body = refusal(
        "the request exceeds the available context size, try increasing it",
        code=code,
        type="exceed_context_size_error",
        n_prompt_tokens=14429,
        n_ctx=8192,
    )
    assert read_overflow(status, body) == Overflow(8192, 14429)


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "model_max_prompt_tokens_exceeded", "model_context_window_exceeded"],
)
def test_a_code_says_it_whatever_the_words(code: str) -> None:
    assert read_overflow(400, refusal("Your quota of words is spent.", code=code)) == Overflow(None, None)
    worded = refusal("input too long: limit 8192, got 9000", code=code)
    assert read_overflow(400, worded) == Overflow(8192, 9000)


@pytest.mark.parametrize("status", [200, 401, 403, 404, 429, 502, 503])
def test_other_statuses_say_something_else(status: int) -> None:
    assert read_overflow(status, refusal("prompt is too long: 201000 tokens > 200000 maximum")) is None


def test_a_refusal_within_a_refusal_is_read() -> None:
    inner = refusal("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).").decode()
    assert read_overflow(400, refusal(f"Provider returned error: {inner}")) == Overflow(1048576, 1200293)


def test_what_is_written_in_escapes_is_read() -> None:
    body = rb'{"error":{"message":"prompt is too long: 201000 tokens \u003e 200000 maximum"}}'
    assert read_overflow(400, body) == Overflow(200000, 201000)
    assert read_overflow(400, json.dumps({"error": {"code": "1261", "message": "Prompt 超长"}}).encode()) is not None


def test_the_words_of_the_conversation_are_not_the_providers() -> None:
    said = "This model's maximum context length is 8192 tokens."
    body = {"detail": [{"msg": "Field required", "input": [{"role": "user", "content": said}]}]}
    assert read_overflow(422, json.dumps(body).encode()) is None


@pytest.mark.parametrize("amount", ["32", "128k", "1M", "99999999999"])
def test_what_is_no_number_of_tokens_is_no_window(amount: str) -> None:
    assert read_overflow(400, refusal(f"The maximum context length is {amount}.")) in (Overflow(None, None), None)


@given(st.integers(0, 700), st.binary(max_size=2_000))
def test_any_answer_can_be_read(status: int, body: bytes) -> None:
    read_overflow(status, body)


# ---------------------------------------------------------------------------------------------- what to come down to
NUMBERS = st.none() | st.integers(-(10**6), 10**30)
AMOUNTS = st.integers(0, 10**6) | st.integers(0, 10**30)


def budget(
    *, window: int | None = None, reserve: int = 4096, overhead: int = 0, factor: float = 1.0, note: int = 0
) -> Budget:
    return Budget(None, window, reserve, overhead, None, factor, Size(note, 1))


@given(
    st.builds(Overflow, NUMBERS, NUMBERS, NUMBERS),
    st.builds(
        lambda *a: Budget(*a[:-1], note=Size(a[-1], 1)),
        st.none(), st.none(), AMOUNTS, AMOUNTS, st.none(), st.floats(0.8, 3), st.integers(0, 100),
    ),
    st.integers(2, 10**6) | st.integers(2, 10**30),
)  # fmt: skip
def test_the_retry_is_smaller_whatever_a_refusal_says(said: Overflow, held_to: Budget, sent: int) -> None:
    assert 1 <= target(said, held_to, sent) < sent


def test_what_a_refusal_counted_is_believed() -> None:
    """A tokenizer that needs 2.5 tokens for one of ours."""
    assert target(Overflow(8192, 15_000), budget(reserve=1000), 6000) == int((8192 - 1000) / 2.5)


def test_what_was_learned_before_is_not_forgotten() -> None:
    assert target(Overflow(8192, 8300), budget(reserve=1000, factor=2.0), 6000) == 3596


def test_tools_and_the_note_take_their_part_of_the_window() -> None:
    held_to = budget(reserve=1000, overhead=3000, note=50)
    assert target(Overflow(8192, None), held_to, 6000) == 8192 - 1000 - 3000 - 50


def test_the_answer_an_upstream_reserves_counts_where_it_is_larger_than_ours() -> None:
    assert target(Overflow(65536, 70875, 21333), budget(), 70875) == 65536 - 21333


@pytest.mark.parametrize("reserve", [8192, 10**400])
def test_a_reserve_as_large_as_the_window_is_a_wish(reserve: int) -> None:
    assert target(Overflow(8192, None), Budget(None, None, reserve, 0, None), 9000) == 4096


def test_without_numbers_three_tenths_go() -> None:
    assert target(Overflow(None, None), budget(), 1000) == 700


def test_tools_that_fill_the_window_alone_cost_no_conversation() -> None:
    assert target(Overflow(4096, 9000), budget(overhead=8000), 1000) == 900


def test_a_window_that_is_configured_smaller_still_holds() -> None:
    assert target(Overflow(200_000, None), budget(window=10_000, reserve=1000), 12_000) == 9000


# ---------------------------------------------------------------------------------------------- what is remembered
class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_learned_window_is_believed_for_a_day() -> None:
    clock = Clock()
    windows = LearnedWindows(clock)
    windows.learn("m", 8192)
    clock.now = REMEMBERED_S
    assert windows.of("m") == 8192
    clock.now += 1
    assert windows.of("m") is None
    assert windows.of("other") is None


def test_a_window_that_a_model_has_read_past_is_forgotten() -> None:
    windows = LearnedWindows(Clock())
    windows.learn("m", 8192)
    windows.contradict("m", 8192)
    assert windows.of("m") == 8192
    windows.contradict("m", 8193)
    assert windows.of("m") is None


def test_windows_of_ever_new_names_are_forgotten_the_oldest_first() -> None:
    windows = LearnedWindows(Clock())
    for number in range(MOST_MODELS + 1):
        windows.learn(f"m{number}", 8192)
    assert windows.of("m0") is None
    assert windows.of("m1") == 8192
