"""The parts of a stream, seen before litellm's wrapper takes them."""

from types import SimpleNamespace
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from transom.proxy.upstream.litellm.raw_stream import RawStream


class Wrapper:
    """As litellm's: it is asked for each part by name."""

    def chunk_creator(self, chunk: Any) -> Any:
        return chunk


def part(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> ChatCompletionChunk:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletionChunk.model_validate(chunk)


@pytest.mark.parametrize(
    ("delta", "marked"),
    [
        ({"refusal": "No."}, True),
        ({"reasoning_details": [{"text": "Hm."}]}, True),
        ({"role": "assistant", "content": "", "refusal": None}, False),
        ({"content": "Yes."}, False),
        ({"reasoning_content": "Hm."}, False),
        ({"x": []}, False),
        ({"refusal": "No.", "provider_specific_fields": {"a": 1}}, False),
    ],
)
def test_what_the_wrapper_would_pass_over_is_marked(delta: dict[str, Any], marked: bool) -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=False):
        made = wrapper.chunk_creator(chunk=part(delta))
    assert (getattr(made.choices[0].delta, "provider_specific_fields", None) == {}) is marked


def test_the_ends_of_several_choices_are_told_once() -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=True) as raw:
        for index, finish in enumerate(["stop", None, "length"]):
            wrapper.chunk_creator(chunk=part({}, finish, index))
        assert raw.ends() == {0: "stop", 2: "length"}
        assert raw.ends() == {}


def test_each_of_several_choices_begins_with_its_role() -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=True) as raw:
        for role in ("assistant", None):
            for index in (1, 0):
                choice = raw.own(wrapper.chunk_creator(chunk=part({"content": "Hi"}, "stop", index))).choices[0]
                assert (choice.delta.role, choice.finish_reason) == (role, None)


def test_of_one_choice_the_wrapper_knows_the_end() -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=False) as raw:
        wrapper.chunk_creator(chunk=part({}, "stop"))
        assert raw.ends() == {}


def test_parts_of_another_shape_are_left_alone() -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=True) as raw:
        for chunk in ({"text": "Hi"}, SimpleNamespace(choices=None), SimpleNamespace(choices=[]), b"Hi"):
            assert wrapper.chunk_creator(chunk=chunk) is chunk
        assert raw.ends() == {}
        assert raw.own(part({"content": "Hi"}, "stop")) == part({"content": "Hi"}, "stop")


def test_afterwards_the_wrapper_is_as_it_was() -> None:
    wrapper: Any = Wrapper()
    with RawStream(wrapper, several=True):
        assert "chunk_creator" in vars(wrapper)
    assert vars(wrapper) == {}
