"""The demo model through the port, its answers read with the types of OpenAI's own package."""

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from transom.proxy.config.settings import Model
from transom.proxy.errors import UpstreamBroken
from transom.proxy.sse import SseSplitter, events, payload
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.upstream.demo import DEFAULT_WINDOW, DemoUpstream

LIMIT = 1 << 20
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Look.", "parameters": CITY}}
PING = {"type": "function", "function": {"name": "ping"}}


def words(text: str) -> int:
    return len(text.split())


DEMO = DemoUpstream(words)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def bodied(messages: list[dict[str, Any]], **fields: Any) -> UpstreamRequest:
    window = fields.pop("window", None)
    model = Model(name="demo", provider="demo", upstream_model="demo", max_input_tokens=window)
    body = json.dumps({"model": "demo", "messages": messages, **fields}).encode()
    return UpstreamRequest(model, body, stream=bool(fields.get("stream")))


async def asked(messages: list[dict[str, Any]], **fields: Any) -> ChatCompletion:
    reply = await DEMO.send(bodied(messages, **fields))
    body = await reply.read(LIMIT)
    assert reply.status == 200, body
    assert reply.headers["content-type"] == "application/json"
    return ChatCompletion.model_validate_json(body, strict=True)


async def text_of(messages: list[dict[str, Any]], **fields: Any) -> str:
    return (await asked(messages, **fields)).choices[0].message.content or ""


async def calls_of(messages: list[dict[str, Any]], **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    choice = (await asked(messages, **fields)).choices[0]
    calls = choice.message.tool_calls or []
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"]


async def streamed(messages: list[dict[str, Any]], **fields: Any) -> list[ChatCompletionChunk]:
    reply = await DEMO.send(bodied(messages, stream=True, **fields))
    assert reply.headers["content-type"].startswith("text/event-stream")
    splitter = SseSplitter()
    found = [payload(event) async for chunk in reply.chunks() for event in events(splitter.feed(chunk))]
    assert splitter.rest == b""
    assert found[-1] == b"[DONE]"
    return [ChatCompletionChunk.model_validate_json(one, strict=True) for one in found[:-1]]


async def refused(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    reply = await DEMO.send(bodied(messages, **fields))
    assert reply.status == 400
    error: dict[str, Any] = json.loads(await reply.read(LIMIT))["error"]
    assert error["type"] == "invalid_request_error"
    return error


async def after(messages: list[dict[str, Any]], results: list[str], **fields: Any) -> list[dict[str, Any]]:
    """Return the messages with the model's calls and their results."""
    message = (await asked(messages, **fields)).choices[0].message
    calls = message.tool_calls or []
    answers = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(calls, results, strict=True)
    ]
    return [*messages, message.model_dump(exclude_none=True), *answers]


async def test_equal_requests_get_equal_bytes() -> None:
    first, second = [await (await DEMO.send(bodied([user("Hello.")]))).read(LIMIT) for _ in range(2)]

    assert first == second


async def test_it_says_what_it_is() -> None:
    assert "demo model" in await text_of([user("Hello there.")])
    assert "not a language model" in await text_of(
        [user("Hi."), {"role": "assistant", "content": "Hi."}, user("Who are you?")]
    )


@pytest.mark.parametrize("tools", [None, [WEATHER]])
async def test_a_stream_adds_up_to_the_whole_answer(tools: list[dict[str, Any]] | None) -> None:
    messages = [user("What is the weather in Paris and Rome?")]
    fields = {"tools": tools} if tools else {}
    whole = await asked(messages, **fields)
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    chunks = await streamed(messages, stream_options={"include_usage": True}, **fields)
    for chunk in chunks:
        list(state.handle_chunk(chunk))
    final = state.get_final_completion()

    assert len(chunks) > 5
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert (final.choices[0].message.content or "") == (whole.choices[0].message.content or "")
    made, told = final.choices[0].message.tool_calls or [], whole.choices[0].message.tool_calls or []
    assert [call.function.arguments for call in made] == [
        call.function.arguments for call in told if call.type == "function"
    ]
    assert final.usage == whole.usage


async def test_usage_is_counted_and_streamed_only_when_asked_for() -> None:
    usage = (await asked([user("one two three")], n=2)).usage
    assert usage is not None
    assert usage.prompt_tokens == 3 + 4 + 3
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    plain = await streamed([user("one two three")])
    assert all(chunk.usage is None and chunk.choices for chunk in plain)
    with_usage = await streamed([user("one two three")], stream_options={"include_usage": True})
    assert with_usage[-1].choices == []
    assert with_usage[-1].usage is not None


async def test_several_choices_are_alike() -> None:
    choices = (await asked([user("Hello.")], n=3)).choices

    assert [choice.index for choice in choices] == [0, 1, 2]
    assert len({choice.message.content for choice in choices}) == 1
    assert {chunk.choices[0].index for chunk in await streamed([user("Hello.")], n=3)} == {0, 1, 2}


async def test_a_fact_is_known_while_it_is_shown() -> None:
    told = [user("My dog's name is Rex."), {"role": "assistant", "content": "Noted."}]

    assert await text_of([*told, user("What is my dog's name?")]) == "Your dog's name is Rex."
    assert "I don't know your dog's name" in await text_of([user("What is my dog's name?")])


async def test_a_fact_in_a_summary_is_known_too() -> None:
    summary = system("[Conversation Summary]\n\nUser: My order number is A-17.")

    assert await text_of([summary, user("What is my order number?")]) == "Your order number is A-17."


async def test_the_newest_of_two_facts_counts() -> None:
    told = [user("My budget is 100 euros."), user("My budget is 250 euros.")]

    assert await text_of([*told, user("What's my budget?")]) == "Your budget is 250 euros."


async def test_parallel_calls_then_an_answer_made_of_the_results() -> None:
    messages = [user("What is the weather in Paris and Rome?")]
    assert await calls_of(messages, tools=[WEATHER]) == [
        ("get_weather", {"city": "Paris"}),
        ("get_weather", {"city": "Rome"}),
    ]

    done = await after(messages, ["18 degrees", "25 degrees"], tools=[WEATHER])
    answer = await text_of(done, tools=[WEATHER])
    assert "18 degrees" in answer
    assert "25 degrees" in answer


async def test_chained_calls_come_one_after_the_other() -> None:
    messages = [user("Call ping, then call get_weather with city=Oslo")]
    tools = [WEATHER, PING]
    assert await calls_of(messages, tools=tools) == [("ping", {})]

    messages = await after(messages, ["pong"], tools=tools)
    assert await calls_of(messages, tools=tools) == [("get_weather", {"city": "Oslo"})]

    messages = await after(messages, ["3 degrees"], tools=tools)
    assert await calls_of(messages, tools=tools) == []


async def test_a_new_turn_begins_its_own_calls() -> None:
    messages = await after([user("call ping")], ["pong"], tools=[PING])

    assert await calls_of([*messages, user("call ping again")], tools=[PING]) == [("ping", {})]


async def test_a_long_chain_stops_when_tools_are_switched_off() -> None:
    messages = [user("call ping 12 times")]
    for _ in range(3):
        messages = await after(messages, ["pong"], tools=[PING])

    assert await calls_of(messages, tools=[PING]) == [("ping", {})]
    assert await calls_of(messages, tools=[PING], tool_choice="none") == []
    assert "pong" in await text_of(messages, tools=[PING], tool_choice="none")
    assert await calls_of(messages) == []


async def test_tool_choice_and_parallel_calls_are_obeyed() -> None:
    idle = [user("Good morning.")]
    forced = {"type": "function", "function": {"name": "ping"}}

    assert await calls_of(idle, tools=[WEATHER, PING]) == []
    assert await calls_of(idle, tools=[WEATHER, PING], tool_choice=forced) == [("ping", {})]
    assert [name for name, _ in await calls_of(idle, tools=[WEATHER, PING], tool_choice="required")] == ["get_weather"]
    both = [user("What is the weather in Paris and Rome?")]
    assert len(await calls_of(both, tools=[WEATHER], parallel_tool_calls=False)) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [user("a"), {"role": "tool", "tool_call_id": "x", "content": "b"}],
        [user("a"), {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f"}}]}],
        [
            user("a"),
            {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f"}}]},
            user("b"),
        ],
    ],
)
async def test_orphans_are_refused(messages: list[dict[str, Any]]) -> None:
    assert "tool" in (await refused(messages))["message"]


async def test_without_a_user_message_nothing_is_called() -> None:
    greeting = [{"role": "assistant", "content": "Hello."}]

    assert await calls_of(greeting, tools=[PING]) == []
    assert await text_of(greeting)


async def test_the_window_is_enforced_with_openais_error() -> None:
    error = await refused([user("word " * 9000)])
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert f"maximum context length is {DEFAULT_WINDOW} tokens" in error["message"]

    assert (await refused([user("word " * 90)], window=50))["code"] == "context_length_exceeded"
    assert "in the completion" in (await refused([user("word " * 40)], window=50, max_tokens=20))["message"]
    assert await text_of([user("word " * 9000)], window=10_000)


async def test_the_output_limit_cuts() -> None:
    choice = (await asked([user("Write 200 words about boats.")], max_completion_tokens=50)).choices[0]

    assert words(choice.message.content or "") == 50
    assert choice.finish_reason == "length"
    assert words(await text_of([user("Write 200 words about boats.")])) == 200


async def test_json_when_json_was_asked_for() -> None:
    assert "answer" in json.loads(await text_of([user("Hi.")], response_format={"type": "json_object"}))


async def test_text_parts_and_images() -> None:
    parts = [{"type": "text", "text": "My cat is Tom."}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    completion = await asked([{"role": "user", "content": parts}])

    assert "your cat is Tom" in (completion.choices[0].message.content or "")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > 765


async def test_a_summary_request_gets_an_extract() -> None:
    record = (
        "===== BEGIN TRANSCRIPT n =====\nUser: My dog is Rex. Nice day.\n\nAssistant: Ok.\n===== END TRANSCRIPT n ====="
    )
    messages = [system("You maintain the running summary of a conversation. Use at most 60 tokens."), user(record)]

    assert await text_of(messages, tools=[PING]) == "User: My dog is Rex."


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"messages":[]}', b'{"messages":[{"role":1}]}', b'{"messages":[{"role":"user","content":7}]}'],
)
async def test_what_is_no_request_is_refused(body: bytes) -> None:
    reply = await DEMO.send(UpstreamRequest(bodied([]).model, body))

    assert reply.status == 400
    assert "error" in json.loads(await reply.read(LIMIT))


async def test_other_paths_do_not_exist() -> None:
    reply = await DEMO.send(UpstreamRequest(bodied([]).model, b"{}", path="embeddings"))

    assert reply.status == 404


async def test_the_reply_keeps_the_ports_promises() -> None:
    reply = await DEMO.send(bodied([user("Hello.")], stream=True))
    await anext(reply.chunks())
    await reply.close()
    await reply.close()
    assert [piece async for piece in reply.chunks()] == []

    with pytest.raises(UpstreamBroken):
        await (await DEMO.send(bodied([user("Hello.")]))).read(10)
    await DEMO.aclose()
