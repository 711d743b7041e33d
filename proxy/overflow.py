"""Recognise a provider's refusal of a prompt that is too long, in whatever words, and read its numbers.

The wordings are those of OpenAI (old and new), Azure, Anthropic, Gemini, Vertex, Bedrock, Mistral, Cohere, Groq, xAI,
OpenRouter, Together, Fireworks, DeepSeek, Qwen, Moonshot, Zhipu, MiniMax, vLLM, llama.cpp, Ollama and LM Studio, as
their APIs were seen to answer. A rate limit that counts tokens is not one of them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

STATUSES = frozenset({400, 413, 422, 500})

_WORDS = re.compile(
    r"context[ _-]?length|context[ _-]?window|context[ _-]?size|context limit|maximum context"
    r"|exceed_context|prompt is too long|prompt too long|prompt (?:contains|length|exceeds)"
    r"|input is too long|input (?:tokens?|length|token count)[^.]{0,80}(?:exceed|too|larger|limit|maximum|must)"
    r"|too many (?:input |total )?tokens|tokens? (?:count )?exceed|exceeds? (?:the )?(?:available|maximum|max|model)"
    r"|longer than the (?:model|maximum)|maximum (?:prompt|input|allowed|number of (?:input )?tokens)"
    r"|max_prompt_tokens|model_max_prompt_tokens|range of input length|reduce the length|max(?:imum)?_?seq_?len"
    r"|larger than (?:the )?max|request (?:entity )?too large.{0,40}token|token limit|total tokens of (?:image|input)"
    r"|prompt 超长|超过(?:最大|模型)|输入(?:过长|长度)|tokens? (?:过长|超出)",
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(
    r"rate.?limit|tokens? per (?:minute|day|hour)|\bTPM\b|\bTPD\b|quota|throttl|billing|credit", re.IGNORECASE
)
_OUTPUT = re.compile(
    r"max_(?:completion_|output_|new_)?tokens (?:is|must|should|cannot|value|parameter)|invalid.{0,20}max_tokens",
    re.IGNORECASE,
)
_NUMBER = r"(\d[\d,._ ]*\d|\d)"
_LIMITS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\"n_ctx\"\s*:\s*" + _NUMBER,
        r"maximum context (?:length|size|window)[^\d]{0,40}" + _NUMBER,
        r"context (?:length|size|window|limit)[^\d]{0,60}" + _NUMBER,
        r"\d[\d,]*\s*(?:tokens?)?\s*>\s*" + _NUMBER,
        r"(?:maximum|max|limit|at most|up to)[^\d]{0,60}" + _NUMBER,
        r"range of input length should be \[\d+,\s*" + _NUMBER,
        r"(?:supports?|allows?|only)[^\d]{0,40}" + _NUMBER + r"\s*tokens?",
    )
]
_SIZES = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\"n_prompt_tokens\"\s*:\s*" + _NUMBER,
        r"(?:resulted in|requested|contains?|has|have|is too long:?|got|received|were|prompt of|you passed)[^\d]{0,40}"
        + _NUMBER,
        _NUMBER + r"\s*(?:tokens?)?\s*>\s*\d",
        r"(?:token count|input tokens?|prompt tokens?|request)\s*\(?" + _NUMBER,
        _NUMBER + r" tokens (?:in (?:the|your)|from the)",
    )
]
SMALLEST = 64  # tokens: a number below it is no window
REMEMBERED_S = 24 * 3_600.0


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a refusal said, in the provider's tokens; None where it gave no number."""

    window: int | None
    size: int | None


def read_overflow(status: int, body: bytes) -> Overflow | None:
    """Return what an upstream's error says about its window, or None if it is about something else."""
    if status not in STATUSES:
        return None
    text = body[:65_536].decode("utf-8", "replace")
    code = re.search(r'"code"\s*:\s*"context_length_exceeded"', text)
    if code is None and (not _WORDS.search(text) or _RATE.search(text) or _only_output(text)):
        return None
    window = _first(_LIMITS, text)
    size = _first(_SIZES, text)
    if size is not None and window is not None and size <= window:
        size = None
    return Overflow(window, size)


def _only_output(text: str) -> bool:
    """Tell whether the complaint is about the answer's length alone."""
    return bool(_OUTPUT.search(text)) and not re.search(r"prompt|context|input", text, re.IGNORECASE)


def _first(patterns: "list[re.Pattern[str]]", text: str) -> int | None:
    for pattern in patterns:
        for match in pattern.finditer(text):
            digits = re.sub(r"\D", "", match.group(1))
            if digits and len(digits) < 10 and int(digits) >= SMALLEST:
                return int(digits)
    return None


class LearnedWindows:
    """The windows that refusals told of, for models whose window nobody configured; each is believed for a day."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[int, float]] = {}

    def of(self, model: str) -> int | None:
        """Return a model's window in its own tokens, if one was learned."""
        known = self._windows.get(model)
        if known is None or self._clock() - known[1] > REMEMBERED_S:
            return None
        return known[0]

    def learn(self, model: str, window: int) -> None:
        """Believe a refusal's number."""
        self._windows[model] = (window, self._clock())

    def contradict(self, model: str, read: int) -> None:
        """Forget a window that a model has just read more than."""
        known = self._windows.get(model)
        if known is not None and read > known[0]:
            del self._windows[model]
