"""Gemini's generateContent: what it refuses, and how it answers."""

import json
from collections.abc import Iterator

from tests.proxy.upstream.litellm.said import Json, Said, alternation, halves

STOPS = {"stop": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}


def problem(body: Json) -> str | None:
    """Say why the API would refuse a request, or None."""
    contents = body["contents"]
    wrong = alternation([c["role"] for c in contents])
    if wrong:
        return wrong
    waiting: list[str] = []
    for content in contents:
        parts = content["parts"]
        if not parts or any("text" in part and not part["text"] for part in parts):
            return "an empty part"
        results = [p["function_response"]["name"] for p in parts if "function_response" in p]
        if results != waiting:
            return f"results {results} for calls {waiting}"
        waiting = [p["function_call"]["name"] for p in parts if "function_call" in p]
        if waiting and not body.get("tools"):
            return "calls without tools"
    return f"unanswered calls {waiting}" if waiting else None


def system(body: Json) -> str:
    """Return the system prompt as one text."""
    return "\n".join(part["text"] for part in body.get("system_instruction", {}).get("parts", []))


def texts(body: Json) -> list[str]:
    """Return what stands in the contents, results included."""
    return [
        part["text"] if "text" in part else json.dumps(part.get("function_response", ""))
        for content in body["contents"]
        for part in content["parts"]
    ]


def whole(said: Said, model: str, number: int) -> bytes:
    """Return a JSON answer."""
    parts: list[Json] = [{"text": said.thinking, "thought": True}] if said.thinking else []
    parts += [{"text": said.text}] if said.text else []
    parts += _calls(said)
    return json.dumps(_answer(said, model, number, parts, last=True)).encode()


def stream(said: Said, model: str, number: int) -> Iterator[bytes]:
    """Yield the events of a streamed answer."""
    pieces: list[list[Json]] = [[{"text": said.thinking, "thought": True}]] if said.thinking else []
    pieces += [[{"text": half}] for half in halves(said.text or "")]
    pieces += [_calls(said)] if said.calls else []
    for place, parts in enumerate(pieces, 1):
        answer = _answer(said, model, number, parts, last=place == len(pieces))
        yield b"data: " + json.dumps(answer).encode() + b"\r\n\r\n"


def _calls(said: Said) -> list[Json]:
    return [{"functionCall": {"name": name, "args": arguments}} for name, arguments in said.calls]


def _answer(said: Said, model: str, number: int, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last and not said.cut:
        candidate["finishReason"] = STOPS[said.finish]
    usage = {
        "promptTokenCount": said.prompt,
        "cachedContentTokenCount": said.cached,
        "candidatesTokenCount": said.completion,
        "totalTokenCount": said.prompt + said.completion,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": model,
        "responseId": f"gemini-{number}",
    }
