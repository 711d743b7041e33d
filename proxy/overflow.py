"""Recognise a provider's refusal of a prompt that is too long, in whatever words, and say what to come down to.

The wordings are those of OpenAI, Azure, Anthropic, Gemini, Vertex, Bedrock, Mistral, Cohere, Together, Groq, DeepSeek,
xAI, OpenRouter, Fireworks, DeepInfra, Cerebras, Copilot, watsonx, Qwen, Moonshot, Zhipu, MiniMax, Doubao, vLLM, SGLang,
TensorRT-LLM, TGI, llama.cpp, Ollama and LM Studio, as their users reported them. Not among them: a rate limit that
counts tokens, an account without money, a body or an image of too many bytes, and an answer that was to be too long.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from transom.proxy.budgets import Budget

STATUSES = frozenset({400, 413, 422, 500})
MOST_CHARACTERS = 8_192  # of a refusal; what matters stands first
SMALLEST = 64  # tokens: a number below it is no window
MOST_DIGITS = 9
MOST_RATIO = 10.0  # the provider's tokens for one of ours; beyond it the number is something else
SHRINK_TO = 7  # tenths of what was sent, where a refusal gave no numbers
REMEMBERED_S = 24 * 3_600.0
MOST_MODELS = 1_000  # whose windows are remembered: any name may pass through `*`

# In a wording {window} is the most a model reads, {size} what the prompt came to, {output} what the answer was to have,
# and {total} both; {gap} is a sentence's worth of anything. The first wording found gives the numbers.
WORDINGS = (
    r"n_keep: {size} ?>= ?n_ctx: {window}",
    r"(?:n_prompt_tokens\W+{size}\W+)?n_ctx\W+{window}",
    (
        r"context length (?:is|of) {window}{gap}requested (?:about |a total of )?{total} tokens{gap}"
        r"{output} (?:tokens )?(?:in|for) the (?:completion|output)"
    ),
    (
        r"context length is {window}{gap}requested {output} output tokens and your prompt contains (?:at least )?"
        r"(?:{size} input tokens|\d+ characters)"
    ),
    r"too large: {output}\. this model.s maximum context length is {window} tokens and your request has {size} input",
    r"passed {size} input tokens(?: and requested {output} output tokens)?{gap}context length is only {window}",
    r"context length is {window}{gap}(?:resulted in|request has|requested(?: about)?) {size} (?:input )?tokens",
    (
        r"inputs\W? tokens \+ \W?max_new_tokens\W? must be <= {window}"
        r"(?:\W+given: {size} \W?inputs\W? tokens and {output})?"
    ),
    r"inputs\W? must have less than {window} tokens(?:\W+given: {size})?",
    r"exceed context limit: {size} \+ {output} > {window}",
    r"{size} tokens > {window} maximum",
    r"prompt is too long: {size}, model maximum context length: {window}",
    r"input token count (?:\({size}\) )?exceeds the maximum number of tokens allowed \(?{window}",
    r"input token count is {size} but model only supports up to {window}",
    r"max input tokens: {window}, request input token count: {size}",
    r"prompt contains {size} tokens{gap}too large for model with {window} maximum context length",
    r"tokens in the prompt cannot exceed {window}(?: - received {size})?",
    r"size limit exceeded by \d+ tokens(?:{gap}limit for this model is {window})?",
    r"maximum prompt length is {window} but the request contains {size}",
    r"configured limit of {window} tokens(?:{gap}resulted in {size} tokens)?",
    r"current length is {size} while limit is {window}",
    r"model token limit ?: ?{window}(?: \(requested: {size}\))?",
    r"range of input length should be \[\d+, ?{window}\]",
    r"number of input tokens {size} cannot exceed the total tokens limit {window}",
    r"prompt has {size} tokens, but the configured context size is {window}",
    r"keep the first {size} tokens{gap}context length of only {window}",
    (
        r"prompt length \({size}\),? (?:and )?query length \(\d+\)(?: max_tokens \({output}\))? should not exceed \S+ "
        r"\({window}"
    ),
    r"too long: limit {window}, got {size}",
    (
        r"(?:input|prompt|request|tokens)\b[^.\d]{{0,30}}{size}(?: tokens)?\)? "
        r"(?:exceeds?|is longer than|is too long)\b[^.\d]{{0,60}}\b(?:length|size|window|limit)\b[^.\d]{{0,6}}{window}"
        r"(?! ?(?:bytes|[kmg]b|characters))"
    ),
    r"(?:context|prompt) (?:length|window|size|limit)(?: is| of|:)?(?: only)? \(?{window}",
    r"too long, limit is {window} tokens",
    r"prompt ?(?:is )?too ?long",
    r"input is too long",
    r"input token length too long",
    r"(?:exceeds?|exceeded|greater than) (?:[\w']+ ){{0,3}}context (?:length|size|window)",
    r"context (?:length|size|window) (?:exceeds limit|has been exceeded|exceeded)",
    r"prompt (?:length )?exceeds (?:the )?max(?:imum)? (?:input )?length",
    r"input tokens? (?:exceeds?|exceeded)",
    r"exceed max message tokens",
    r"too many (?:input )?tokens(?!: max tokens)",
    r"reduce the length of (?:the |your )?(?:input |either )?(?:messages|prompt|one)",
    r"prompt ?超长|(?:输入|上下文)\S{{0,12}}(?:超|过长)",
)
CODES = re.compile(
    r"context_(?:length|window|size)_exceeded|exceed_context_size|max_prompt_tokens_exceeded|ContextWindowExceeded"
)
OTHER_LIMITS = re.compile(
    r"rate.?limit|\bper.(?:min(?:ute)?|hour|day)\b|\bTPM\b|throttl|wait before|again (?:later|in)"
    r"|quota|credits\b|billing",
    re.IGNORECASE,
)
ECHO = re.compile(r'"(?:input|messages)"\s*:')  # from here on the request itself is quoted
ESCAPED = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)

_NUMBER = r"(?<![\d.,_])(?P<{}>\d{{1,3}}(?:[,._]\d{{3}})+|\d+)(?![\dkKmM])(?:\.\d{{1,2}}\b)?"
_PARTS = {name: _NUMBER.format(name) for name in ("window", "size", "output", "total")} | {"gap": r".{0,120}?"}
_PATTERNS = tuple(re.compile(wording.format(**_PARTS), re.IGNORECASE | re.DOTALL) for wording in WORDINGS)


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a refusal said, in the provider's tokens; None where it gave no number.

    `window` is the most the model reads and writes, `size` the prompt's length, `output` the room kept for the answer.
    """

    window: int | None
    size: int | None
    output: int | None = None


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """Return what an upstream's error says about its window, or None if it is about something else."""
    if status not in STATUSES:
        return None
    text = ECHO.split(body[: 4 * MOST_CHARACTERS].decode("utf-8", "replace"), maxsplit=1)[0][:MOST_CHARACTERS]
    text = ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
    coded = CODES.search(text) is not None
    if not coded and OTHER_LIMITS.search(text):
        return None
    found = next((match for pattern in _PATTERNS if (match := pattern.search(text))), None)
    if found is None:
        return Overflow(None, None) if coded else None
    numbers = {name: _whole(digits) for name, digits in found.groupdict().items()}
    window, output, total = numbers.get("window"), numbers.get("output"), numbers.get("total")
    if window is not None and output is not None and output >= window:
        return None  # no prompt is short enough for that answer
    size = numbers.get("size") or (total - (output or 0) if total is not None else None)
    return Overflow(window if window is not None and window >= SMALLEST else None, size or None, output)


def _whole(digits: str | None) -> int | None:
    """Read a number, whatever separates its thousands; None for one that is no number of tokens."""
    plain = re.sub(r"\D", "", digits or "")
    return int(plain) if 0 < len(plain) <= MOST_DIGITS else None


def target(overflow: Overflow, budget: Budget, sent: int) -> int:
    """Return what a view of `sent` tokens is to come down to, in o200k tokens: at least 1, and less than was sent.

    A reserve that leaves no room is a wish: what is tried then is half of the window, then nearly all of it.
    """
    most = sent * 9 // 10
    if overflow.window is None:
        return max(1, min(most, sent * SHRINK_TO // 10))
    window = overflow.window if budget.window is None else min(overflow.window, budget.window)
    beside = budget.overhead + budget.note.tokens
    factor = budget.factor
    if overflow.size is not None and overflow.size <= MOST_RATIO * (sent + beside):
        factor = max(factor, overflow.size / (sent + beside))
    for room in (window - max(budget.reserve, overflow.output or 0), window // 2, window * 9 // 10):
        left = int(room / factor) - beside if room > 0 else 0
        if left > 0:
            return max(1, min(left, most))
    return max(1, most)  # what stands beside the messages is too much by itself, or the numbers are absurd


class LearnedWindows:
    """The windows that refusals told of, for models whose window nobody configured; each is believed for a day."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def of(self, model: str) -> int | None:
        """Return a model's window in its own tokens, if one was learned."""
        known = self._windows.get(model)
        if known is None or self._clock() - known[1] > REMEMBERED_S:
            return None
        return known[0]

    def learn(self, model: str, window: int) -> None:
        """Believe a refusal's number."""
        self._windows[model] = (window, self._clock())
        self._windows.move_to_end(model)
        while len(self._windows) > MOST_MODELS:
            self._windows.popitem(last=False)

    def contradict(self, model: str, read: int) -> None:
        """Forget a window that a model has just read more than."""
        known = self._windows.get(model)
        if known is not None and read > known[0]:
            del self._windows[model]
