"""Every kind of answer by every way through the proxy: valid by the strict models of OpenAI's SDK, and nothing lost."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.proxy.e2e.conftest import sqlite
from tests.proxy.e2e.fake_upstream import DONE, Answer, FakeUpstream, Received, call, stream
from tests.proxy.e2e.served import Got, Json, Proxy, assistant, config, result, serving, user

# litellm's parts warn when they are first imported, which is within the first request that needs them.
pytestmark = pytest.mark.filterwarnings("ignore")

Choice = tuple[Json, str, Json | None]  # message, finish reason, logprobs


def said(content: str | None = "Hello there.", **more: Any) -> Json:
    return {"role": "assistant", "content": content, "refusal": None, **more}


def tokens(*words: str) -> list[Json]:
    heads = [{"token": word, "logprob": -0.5, "bytes": None} for word in words]
    return [head | {"top_logprobs": [head]} for head in heads]


LOGPROBS = {"content": tokens("Hello", " there"), "refusal": None}
KINDS: dict[str, list[Choice]] = {
    "text": [(said(), "stop", None)],
    "length": [(said("Half a"), "length", None)],
    "filtered": [(said(""), "content_filter", None)],
    "nothing": [(said(""), "stop", None)],
    "calls": [(said(None, tool_calls=[call("c1"), call("c2")]), "tool_calls", None)],
    "text-and-call": [(said(tool_calls=[call("c1", arguments='{"place":"x"}')]), "tool_calls", None)],
    "function-call": [(said(None, function_call={"name": "look", "arguments": "{}"}), "function_call", None)],
    "refusal": [(said(None, refusal="I cannot help with that."), "stop", None)],
    "refusal-logprobs": [(said(None, refusal="No."), "stop", {"content": None, "refusal": tokens("N", "o.")})],
    "logprobs": [(said("Hello there"), "stop", LOGPROBS)],
    "reasoning": [(said(reasoning_content="Hm, well."), "stop", None)],
    "several": [(said(f"Number {i}."), "stop", LOGPROBS) for i in range(3)],
    "several-mixed": [
        (said("One."), "length", None),
        (said("Two.", tool_calls=[call("c1")]), "tool_calls", None),
        (said(None, refusal="Not three."), "stop", None),
    ],
}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
TEXTS = ("reasoning_content", "content", "refusal")


def headed(kind: str, **more: Any) -> Json:
    return {"id": "chatcmpl-x", "object": kind, "created": 1, "model": "m", "system_fingerprint": "fp", **more}


def whole(kind: str) -> bytes:
    choices = [
        {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}
        for index, (message, finish, logprobs) in enumerate(KINDS[kind])
    ]
    return json.dumps(headed("chat.completion", choices=choices, usage=USAGE)).encode()


def deltas(index: int, choice: Choice) -> Iterator[Json]:
    """Yield a choice in parts as OpenAI streams it; its texts and their logprobs in halves."""
    message, finish, logprobs = choice
    part = {"index": index, "logprobs": None, "finish_reason": None}
    yield part | {"delta": {"role": "assistant", "content": "" if message["content"] is not None else None}}
    for name in TEXTS:
        text, given = message.get(name) or "", (logprobs or {}).get(name) or []
        middle = len("".join(t["token"] for t in given[:1])) or len(text) // 2
        for half, piece in enumerate(filter(None, (text[:middle], text[middle:]))):
            told = {"content": None, "refusal": None} | {name: given[half : half + 1]} if given else None
            yield part | {"delta": {name: piece}, "logprobs": told}
    for at, made in enumerate(message.get("tool_calls", [])):
        yield part | {"delta": {"tool_calls": [{"index": at, **made}]}}
    if "function_call" in message:
        yield part | {"delta": {"function_call": message["function_call"]}}
    yield part | {"delta": {}, "finish_reason": finish}


def streamed(kind: str, *, usage: bool, interleaved: bool) -> Iterator[bytes]:
    """Yield the events of an answer: its choices one after the other, or one part of each by turns from the last on."""
    rows = [list(deltas(index, choice)) for index, choice in enumerate(KINDS[kind])]
    parts = [part for row in rows for part in row]
    if interleaved:
        longest = max(len(row) for row in rows)
        parts = [row[at] for at in range(longest) for row in reversed(rows) if at < len(row)]
    chunks = [headed("chat.completion.chunk", choices=[part]) for part in parts]
    if usage:
        chunks.append(headed("chat.completion.chunk", choices=[], usage=USAGE))
    yield from (b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    yield DONE


def script(*, crossed: bool = False, interleaved: bool = False) -> Callable[[Received], Answer]:
    """Answer with the kind that the first message names; `crossed`: as a stream where JSON is due, and the reverse."""

    def answer(received: Received) -> Answer:
        kind = received.texts[0]
        if bool(received.fields.get("stream")) is crossed:
            return Answer([whole(kind)])
        usage = crossed or bool((received.fields.get("stream_options") or {}).get("include_usage"))
        return stream(streamed(kind, usage=usage, interleaved=interleaved))

    return answer


PLAIN: Json = {"preset": "chat"}
CAP: Json = {"strategy": "truncate", "max_tokens": 5000, "max_tool_calls_per_turn": 1}
# The names of the models: litellm's target, the policy, how the upstream answers.
WAYS: dict[str, tuple[str, Json, Json]] = {
    "direct": ("openai/direct", PLAIN, {}),
    "crossed": ("openai/crossed", PLAIN, {"crossed": True}),
    "vllm": ("hosted_vllm/vllm", PLAIN, {}),
    "vllm-by-turns": ("hosted_vllm/vllm-by-turns", PLAIN, {"interleaved": True}),
    "azure": ("azure/azure", PLAIN, {"interleaved": True}),
    "cap": ("openai/cap", CAP, {}),
    "cap-crossed": ("openai/cap-crossed", CAP, {"crossed": True}),
    "cap-vllm": ("hosted_vllm/cap-vllm", CAP, {"interleaved": True}),
}


@pytest.fixture(scope="module")
def proxy(running_upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    policies = {name: policy for name, (_, policy, _) in WAYS.items()}
    mapping = config(running_upstream.url, policies, database=sqlite(tmp_path_factory.mktemp("kinds")))
    for entry in mapping["model_list"]:
        entry["litellm_params"]["model"] = WAYS[entry["model_name"]][0]
    (azure,) = [entry["litellm_params"] for entry in mapping["model_list"] if entry["model_name"] == "azure"]
    azure |= {"api_base": running_upstream.url.removesuffix("/v1"), "api_version": "2025-01-01"}
    with serving(mapping) as proxy:
        yield proxy


@pytest.fixture
def answering(upstream: FakeUpstream) -> FakeUpstream:
    for name, (_, _, how) in WAYS.items():
        upstream.on(name, script(**how))
    upstream.scripts["/openai/deployments/azure/chat/completions"] = upstream.scripts["azure"]
    return upstream


def ask(proxy: Proxy, way: str, kind: str, **more: Any) -> Got:
    """Ask for an answer of a kind, at the cap within a turn that has used it up."""
    turn = [assistant(None, [call("t")]), result("t")] if way.startswith("cap") else []
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    offered = {"functions": [{"name": "look"}]} if kind == "function-call" else {"tools": tools}
    return proxy.post({"model": way, "n": len(KINDS[kind]), "messages": [user(kind), *turn]} | offered | more)


def documents(got: Got) -> list[Json]:
    """Return the JSON of an answer or of its events, all valid by the SDK's strict models."""
    if not got.headers["content-type"].startswith("text/event-stream"):
        ChatCompletion.model_validate_json(got.body, strict=True)
        return [got.json]
    events = [event for event in got.events if not event.startswith(b":")]
    assert events[-1] == DONE
    for event in events[:-1]:
        ChatCompletionChunk.model_validate_json(event.removeprefix(b"data: "), strict=True)
    return [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]


def gathered(found: list[Json]) -> list[Json]:
    """Return the choices of an answer or of its events: what each says, its logprobs and how it ended."""
    choices: dict[int, Json] = {}
    for choice in (choice for one in found for choice in one["choices"]):
        known = choices.setdefault(choice["index"], {"finish": None})
        spoken = choice.get("message") or choice["delta"]
        if spoken.get("role"):
            known["role"] = spoken["role"]
        for name in TEXTS:
            if spoken.get(name):
                known[name] = known.get(name, "") + spoken[name]
        if spoken.get("function_call"):
            known["function_call"] = spoken["function_call"]
        for made in spoken.get("tool_calls") or ():
            known.setdefault("tool_calls", []).append({k: v for k, v in made.items() if k != "index"})
        for name, told in (choice.get("logprobs") or {}).items():
            if told:
                known.setdefault(f"logprobs of {name}", []).extend(told)
        if choice["finish_reason"] is not None:
            assert known["finish"] is None
            known["finish"] = choice["finish_reason"]
    return [choices[index] for index in sorted(choices)]


FORMS: list[Json] = [{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("cap")])
def test_nothing_is_lost_on_the_way(proxy: Proxy, answering: FakeUpstream, way: str, kind: str) -> None:
    wanted = gathered([json.loads(whole(kind))])
    for form in FORMS:
        found = documents(ask(proxy, way, kind, **form))
        assert gathered(found) == wanted, form
        counted = [one for one in found if one.get("usage")]
        assert len(counted) == ("stream" not in form or "stream_options" in form), form


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("cap")])
def test_at_the_cap_as_well(proxy: Proxy, answering: FakeUpstream, way: str, kind: str) -> None:
    for form in FORMS:
        choices = gathered(documents(ask(proxy, way, kind, **form)))
        assert all(choice["finish"] in ("stop", "length", "content_filter") for choice in choices)
        assert not any({"tool_calls", "function_call"} & choice.keys() for choice in choices)


@pytest.mark.parametrize("way", ["vllm", "azure"])
def test_the_wrapper_is_left_as_it_was(proxy: Proxy, answering: FakeUpstream, way: str) -> None:
    """A stream that the client ends early, and the next one on the same model."""
    for _ in range(2):
        with proxy.asking({"model": way, "messages": [user("several")], "n": 3, "stream": True}) as response:
            response.read(1)
    assert len(gathered(documents(ask(proxy, way, "several", stream=True)))) == 3


def test_fields_of_one_provider_only_stay_in_streams(proxy: Proxy, upstream: FakeUpstream) -> None:
    details = [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]
    parts = [{"role": "assistant", "content": ""}, {"reasoning_details": details}, {"content": "Yes."}]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in parts]
    events = [headed("chat.completion.chunk", choices=[c]) for c in [*chunks, {**chunks[0], "finish_reason": "stop"}]]
    upstream.on("vllm", stream([*(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events), DONE]))
    found = documents(proxy.post({"model": "vllm", "messages": [user("Think.")], "stream": True}))
    assert [d for one in found for c in one["choices"] for d in c["delta"].get("reasoning_details", [])] == details
