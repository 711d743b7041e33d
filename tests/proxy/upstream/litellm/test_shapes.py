"""litellm's answers as OpenAI would write them."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from transom.proxy.upstream.litellm.shapes import completion, event, finishes


class Answer:
    def __init__(self, **fields: Any) -> None:
        self.fields = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", **fields}

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(json.loads(json.dumps(self.fields)))


def written(message: dict[str, Any], *, reasoned: bool = True, finish: str | None = "stop", **more: Any) -> Any:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.loads(completion(Answer(choices=[choice], **more), reasoned=reasoned))


def test_a_plain_answer_has_openais_fields() -> None:
    answer = written({"role": "assistant", "content": "Hi", "tool_calls": None, "function_call": None, "images": []})
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


def test_calls_lose_their_index_and_content_stays_null() -> None:
    call = {"index": 2, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": None}
    message = written({"content": None, "tool_calls": [call]})["choices"][0]["message"]
    assert message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_what_providers_add_stays_once() -> None:
    fields = {"thinking_blocks": [1], "citations": None, "thought_signatures": ["s"]}
    said = {"content": "Hi", "reasoning_content": "Hm", "thinking_blocks": [1], "provider_specific_fields": fields}
    message = written(said)["choices"][0]["message"]
    assert message["thinking_blocks"] == [1]
    assert message["reasoning_content"] == "Hm"
    assert message["provider_specific_fields"] == {"thought_signatures": ["s"]}


@pytest.mark.parametrize(
    ("content", "reasoned", "finish"),
    [("Hi", False, "stop"), ("", True, "stop"), ("", False, None), (None, False, None)],
)
def test_silence_needs_the_providers_own_reason(content: str | None, reasoned: bool, finish: str | None) -> None:
    answer = written({"content": content}, reasoned=reasoned)
    assert answer["choices"][0]["finish_reason"] == finish


def test_usage_is_openais_and_the_caches() -> None:
    details = {"cached_tokens": 2, "audio_tokens": None}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": details}
    assert written({"content": "x"}, usage={**usage, "cost": 0.1, "cache_read_input_tokens": 2})["usage"] == {
        **usage,
        "prompt_tokens_details": {"cached_tokens": 2},
        "cache_read_input_tokens": 2,
    }
    assert "usage" not in written({"content": "x"}, usage={**usage, "total_tokens": 0})


def test_events() -> None:
    choice = {"index": 1, "delta": {"content": "a", "provider_specific_fields": {"x": []}}}
    chunk = Answer(object="chat.completion.chunk", choices=[choice], vertex_ai_safety_results=[])
    block = event(chunk)
    assert block.startswith(b"data: ")
    assert block.endswith(b"\n\n")
    assert json.loads(block[6:]) == {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 1, "delta": {"content": "a"}, "finish_reason": None}],
    }


def test_a_part_that_says_nothing_is_no_event() -> None:
    assert event(Answer(choices=[], usage={"total_tokens": 0})) == b""
    assert b'"usage"' in event(Answer(choices=[], usage={"prompt_tokens": 1, "total_tokens": 1}))


def test_finishes() -> None:
    def chunk(*reasons: str | None) -> Any:
        return SimpleNamespace(choices=[SimpleNamespace(finish_reason=reason) for reason in reasons])

    assert finishes(chunk(None, "stop"))
    assert not finishes(chunk(None))
    assert not finishes(chunk())
