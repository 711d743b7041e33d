"""Models of other providers behind the proxy: windows, the tool cap, retries, streams and errors as anywhere else."""

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.proxy.e2e.conftest import sqlite
from tests.proxy.e2e.fake_upstream import Answer, Gate, Received
from tests.proxy.e2e.fake_upstream import ordinary as openai_answer
from tests.proxy.e2e.served import Got, Json, Proxy, Talk, assistant, config, long_text, result, serving, user
from tests.proxy.e2e.test_clients_that_leave import leaving
from tests.proxy.e2e.test_compress import over, until
from tests.proxy.upstream.litellm import anthropic, bedrock, gemini
from tests.proxy.upstream.litellm.providers import KEY, Asked, Providers, Script, model_entry, ordinary
from tests.proxy.upstream.litellm.said import Refused, Said
from transom.policies.tool_limit import NOTE
from transom.proxy.upstream.direct import DirectUpstream

# litellm's parts warn when they are first imported, which is within the first request that needs them.
pytestmark = pytest.mark.filterwarnings("ignore")

FILL = {"strategy": "context_window", "max_tokens": 1200, "keep_verbatim": "fill", "compact_at": None}
CAP = {"strategy": "truncate", "max_tokens": 2000, "max_tool_calls_per_turn": 2}
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {"preset": "chat", "compact_at": None},
    "fill": FILL,
    "cap": CAP,
    "small": {"preset": "chat", "reserve_tokens": 100, "compact_at": None},
}
SONNET, HAIKU = "anthropic.claude-3-5-sonnet-20240620-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"
OPUS = "anthropic.claude-3-opus-20240229-v1:0"
# Provider, its name of the model, ours; a model's policy is the last part of our name.
MODELS = [
    ("anthropic", "claude-sonnet-4-5", "claude-plain"),
    ("anthropic", "claude-sonnet-4-0", "claude-fill"),
    ("anthropic", "claude-opus-4-1", "claude-cap"),
    ("anthropic", "claude-unknown", "claude-small"),
    ("gemini", "gemini-2.5-pro", "gemini-plain"),
    ("gemini", "gemini-2.5-flash", "gemini-fill"),
    ("gemini", "gemini-unknown", "gemini-small"),
    ("bedrock", OPUS, "bedrock-plain"),
    ("bedrock", SONNET, "bedrock-fill"),
    ("bedrock", HAIKU, "bedrock-cap"),
    ("hosted_vllm", "qwen", "qwen-fill"),
]
UPSTREAM = {name: upstream for _, upstream, name in MODELS}
BETA = "interleaved-thinking-2025-05-14"  # litellm passes on those that the provider knows
PLAIN = ["claude-plain", "gemini-plain", "bedrock-plain"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look at a place.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module")
def running_providers() -> Iterator[Providers]:
    providers = Providers()
    yield providers
    providers.close()


@pytest.fixture
def providers(running_providers: Providers) -> Iterator[Providers]:
    """Hand out the providers without scripts; afterwards nothing may have come that they would refuse."""
    running_providers.clear()
    yield running_providers
    assert running_providers.refusals == []


@pytest.fixture(scope="module")
def reached() -> Iterator[list[str]]:
    """Note every host that is looked up or connected to, from before litellm is imported (if it was not by now)."""
    hosts: list[str] = []
    lookup, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex
    fetch = DirectUpstream.fetch

    def noted(inner: Callable[..., Any], host_of: Callable[..., object]) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            hosts.append(str(host_of(*args)))
            return inner(*args, **kwargs)

        return noting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", noted(lookup, lambda host, *_: host))
        patch.setattr(socket.socket, "connect", noted(connect, lambda _, address: address[0]))
        patch.setattr(socket.socket, "connect_ex", noted(connect_ex, lambda _, address: address[0]))
        patch.setattr(DirectUpstream, "fetch", noted(fetch, lambda _, request: request.url.host))
        yield hosts


@pytest.fixture(scope="module")
def many(reached: list[str], running_providers: Providers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """Run a proxy with a model of each provider, for a tenant with our keys and one that brings its own."""
    mapping = config("http://127.0.0.1:1", POLICIES, database=sqlite(tmp_path_factory.mktemp("litellm")))
    small = [model_entry(running_providers, *model) for model in MODELS]
    wide = {"claude-plain", "gemini-plain", "bedrock-plain"}
    for entry in small:
        if entry["model_name"] in wide:
            entry["model_info"] = {"max_input_tokens": 100_000}
    mapping["model_list"] = small
    for tenant in mapping["tenants"].values():
        tenant["models"] = {name: name.rpartition("-")[2] for name in UPSTREAM}
    mapping["tenants"]["beta"]["upstream_key"] = "client"
    with serving(mapping) as proxy:
        yield proxy


def hello(model: str, **more: Any) -> Json:
    return {"model": model, "messages": [user("Hello.")], **more}


def spoken_message(got: Got) -> Json:
    """Return the message of an answer, put together if it was streamed."""
    if not got.headers["content-type"].startswith("text/event-stream"):
        return got.message
    assert got.body.endswith(b"data: [DONE]\n\n")
    message: Json = {"role": "assistant", "content": None}
    calls: dict[int, Json] = {}
    for event in got.events[:-1]:
        for choice in json.loads(event.removeprefix(b"data: "))["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for piece in delta.get("tool_calls", ()):
                made = calls.setdefault(piece["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                made["id"] = piece.get("id") or made["id"]
                for name, value in piece["function"].items():
                    made["function"][name] += value or ""
    return message | ({"tool_calls": [calls[index] for index in sorted(calls)]} if calls else {})


# ------------------------------------------------------------------ conversations
def agent(asked: Asked) -> Said:
    """Look at two places for each question, at a third for some, then answer."""
    last, prompt = asked.texts[-1], len(json.dumps(asked.body)) // 4
    both = [("look", {"place": "north"}), ("look", {"place": "south"})]
    if "Question" in last:
        return Said("Let me look.", both, thinking="Hm.", prompt=prompt)
    if "again" in last:
        return Said(None, both[:1], thinking="Hm.", prompt=prompt)
    return Said("It is a river.", prompt=prompt)


@pytest.mark.parametrize("model", ["claude-fill", "gemini-fill", "bedrock-fill"])
def test_forty_turns_with_tools(many: Proxy, providers: Providers, model: str) -> None:
    """Windowed throughout, by turns as JSON and as a stream; the provider checks each request."""
    providers.says(UPSTREAM[model], agent)
    talk = Talk(many, model, f"forty-{model}")
    talk.messages, talk.more = [{"role": "system", "content": "Guide."}], {"tools": TOOLS}
    windows = set()
    for turn in range(40):
        talk.more["stream"] = turn % 2 == 1
        question = long_text(f"Question {turn}", 60)
        talk.messages.append(user(question))
        for step in range(4):
            got = talk.send()
            assert got.status == 200, got.body
            windows.update(got.window)
            answer = spoken_message(got)
            talk.messages.append(answer)
            if "tool_calls" not in answer:
                break
            again = " again" if step == 0 and turn % 8 == 0 else ""
            talk.messages += [result(c["id"], f"found {c['id']}{again}") for c in answer["tool_calls"]]
        assert answer["content"] == "It is a river."
        last = providers.to_model(UPSTREAM[model])[-1]
        assert question in last.texts
        assert last.system.startswith("Guide.")
        assert "Question 0" not in "".join(last.texts) or turn < 12
    assert windows >= {"fits", "compressed"}
    assert any("[Conversation Summary]" in asked.system for asked in providers.to_model(UPSTREAM[model]))


@pytest.mark.parametrize("model", PLAIN)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_in_openais_shape(many: Proxy, providers: Providers, model: str, streamed: bool) -> None:
    said = Said("Two calls.", [("look", {"place": "a"}), ("look", {"place": "b"})], prompt=80, cached=50, completion=9)
    providers.says(UPSTREAM[model], replace(said, thinking=None if "bedrock" in model else "Hm."))
    got = many.post(hello(model, tools=TOOLS, stream=streamed, stream_options={"include_usage": True}))
    message = spoken_message(got)
    assert message["content"] == "Two calls."
    assert [c["function"] for c in message["tool_calls"]] == [
        {"name": "look", "arguments": '{"place": "a"}'},
        {"name": "look", "arguments": '{"place": "b"}'},
    ]
    assert len({c["id"] for c in message["tool_calls"]}) == 2
    chunks = [json.loads(e.removeprefix(b"data: ")) for e in got.events[:-1]] if streamed else [got.json]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk" if streamed else "chat.completion"}
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]] == ["tool_calls"]
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (80, 9, 89)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 50
    if "bedrock" not in model:
        assert b'"reasoning_content":"Hm."' in got.body


@pytest.mark.parametrize(("finish", "reason"), [("stop", "stop"), ("length", "length"), ("refusal", "content_filter")])
@pytest.mark.parametrize("streamed", [False, True])
def test_finish_reasons(many: Proxy, providers: Providers, finish: str, reason: str, streamed: bool) -> None:
    providers.says(UPSTREAM["claude-plain"], Said("Some words", finish=finish))
    got = many.post(hello("claude-plain", stream=streamed))
    assert f'"finish_reason":"{reason}"'.encode() in got.body


def test_the_figures_of_a_provider_are_learned(many: Proxy, providers: Providers) -> None:
    providers.says(UPSTREAM["claude-plain"], Said(prompt=900, cached=700))
    before = many.metric('transom_upstream_tokens_total{kind="cached",model="claude-plain"')
    assert many.post({"model": "claude-plain", "messages": [user(long_text("Long", 600))]}).status == 200
    assert many.metric('transom_upstream_tokens_total{kind="cached",model="claude-plain"') == before + 700
    assert many.metric('transom_token_estimate_error_ratio_count{model="claude-plain"}') >= 1


def test_headers_travel_both_ways(many: Proxy, providers: Providers) -> None:
    limits = {"anthropic-ratelimit-requests-remaining": "9", "content-type": "application/json"}
    body = anthropic.whole(Said(), "claude-sonnet-4-5", 1)
    providers.says(UPSTREAM["claude-plain"], Answer([body], headers=limits))
    got = many.post(hello("claude-plain"), traceparent="00-1-2-01", anthropic_beta=BETA, cookie="c=1", x_other="1")
    assert got.headers["x-ratelimit-remaining-requests"] == "9"
    (asked,) = providers.asked
    assert asked.headers["traceparent"] == "00-1-2-01"
    assert BETA in asked.headers["anthropic-beta"]
    assert {"cookie", "x-other", "authorization"}.isdisjoint(asked.headers)
    assert asked.headers["x-api-key"] == KEY


def test_a_tenants_own_key_goes_up(many: Proxy, providers: Providers) -> None:
    own = {"x_transom_key": "key-of-beta", "authorization": "Bearer sk-own-0123456789"}
    assert many.post(hello("claude-plain"), tenant=None, **own).status == 200
    assert providers.asked[-1].headers["x-api-key"] == "sk-own-0123456789"
    own["authorization"] = "Bearer os.environ/PATH"
    assert many.post(hello("claude-plain"), tenant=None, **own).error[:2] == (401, "invalid_api_key")


# ------------------------------------------------------------------ the cap, retries, roles
def looked(calls: int) -> list[Json]:
    made = [{"id": f"c{i}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in range(calls)]
    return [user("Look."), assistant(None, made), *(result(c["id"]) for c in made)]


@pytest.mark.parametrize("model", ["claude-cap", "bedrock-cap"])
def test_the_tool_cap(many: Proxy, providers: Providers, model: str) -> None:
    """Bedrock knows no `tool_choice: "none"`: it gets the request without tools, and the calls as text."""
    got = many.post({"model": model, "messages": looked(2), "tools": TOOLS})
    assert got.status == 200
    assert got.headers["x-transom-tool-limit"] == "calls"
    (asked,) = providers.to_model(UPSTREAM[model])
    assert asked.texts[-1] == NOTE
    if model == "claude-cap":
        assert asked.body["tool_choice"] == {"type": "none"}
    else:
        assert "toolConfig" not in asked.body


TOO_LONG = {
    "claude-small": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 2600 tokens > 1500 maximum"},
    },
    "gemini-small": {
        "error": {
            "code": 400,
            "message": "The input token count (2600) exceeds the maximum number of tokens allowed (1500).",
            "status": "INVALID_ARGUMENT",
        }
    },
}


def narrow(refusal: Json) -> Script:
    """Refuse what is longer than about 1,500 tokens."""
    return lambda asked: Refused(400, refusal) if len(json.dumps(asked.body)) > 7500 else ordinary(asked)


@pytest.mark.parametrize(("model", "streamed"), [("claude-small", False), ("gemini-small", True)])
def test_a_request_that_was_too_long_is_made_smaller(
    many: Proxy, providers: Providers, model: str, streamed: bool
) -> None:
    providers.says(UPSTREAM[model], narrow(TOO_LONG[model]))
    talk = Talk(many, model, f"overflow-{model}")
    talk.messages, talk.more = over(14), {"stream": streamed}
    got = talk.send()
    assert got.status == 200
    assert "cut" in got.window
    sizes = [len(json.dumps(asked.body)) for asked in providers.to_model(UPSTREAM[model])]
    assert sizes == sorted(sizes, reverse=True)


def test_what_stays_too_long_is_said_as_openai_says_it(many: Proxy, providers: Providers) -> None:
    providers.says(UPSTREAM["claude-small"], Refused(400, TOO_LONG["claude-small"]))
    got = many.post({"model": "claude-small", "messages": over(14)})
    assert got.error == (400, "context_length_exceeded", None)
    assert got.json["error"]["message"] == "prompt is too long: 2600 tokens > 1500 maximum"


def test_a_summary_in_the_system_message_where_the_template_wants_it(many: Proxy, providers: Providers) -> None:
    refusal = b'{"error": {"message": "System message must be at the beginning.", "type": "BadRequest"}}'

    def picky(received: Received) -> Answer:
        if received.is_summary or [m["role"] for m in received.messages].count("system") < 2:
            return openai_answer(received)
        return Answer([refusal], 400)

    providers.on("qwen", picky)
    talk = Talk(many, "qwen-fill", "picky")
    talk.messages = [{"role": "system", "content": "Guide."}, *over(14)]
    assert talk.send().status == 200
    last = providers.to("qwen")[-1].messages
    assert last[0]["content"].startswith("Guide.\n\n[Conversation Summary]")


# ------------------------------------------------------------------ streams
def test_streams_are_not_held_back(many: Proxy, providers: Providers) -> None:
    gate = Gate()
    events = list(anthropic.stream(Said("Hello there"), "m", 1))
    providers.says(
        UPSTREAM["claude-plain"],
        Answer([*events[:4], gate, *events[4:]], headers={"content-type": "text/event-stream"}),
    )
    body = json.dumps(hello("claude-plain", stream=True)).encode()
    with closing(leaving(many, body, "held")) as connection:
        seen = b""
        while b'"Hello"' not in seen:
            seen += connection.recv(4096)
        assert b"there" not in seen
        gate.open()
        while b"[DONE]" not in seen:
            seen += connection.recv(4096)


@pytest.mark.parametrize("model", PLAIN)
@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_leaves_ends_the_providers_call(
    many: Proxy, providers: Providers, model: str, begun: bool
) -> None:
    api, opening = {"claude": (anthropic, 4), "gemini": (gemini, 1), "bedrock": (bedrock, 2)}[model.partition("-")[0]]
    kind = bedrock.STREAM if "bedrock" in model else "text/event-stream"
    events = list(api.stream(Said("Hello there"), "m", 1))[: opening if begun else 0]
    if "gemini" in model:
        events = [b'data: {"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"}}]}\r\n\r\n'][
            : len(events)
        ]
    providers.says(UPSTREAM[model], Answer([*events, Gate()], headers={"content-type": kind}))
    with closing(leaving(many, json.dumps(hello(model, stream=True)).encode(), f"left-{model}-{begun}")) as connection:
        until(lambda: bool(providers.asked))
        seen = b""
        while begun and b'"Hello"' not in seen:
            seen += connection.recv(4096)
    until(providers.asked[0].gone.is_set)


@pytest.mark.parametrize("model", PLAIN)
def test_a_stream_without_its_end_is_no_answer(many: Proxy, providers: Providers, model: str) -> None:
    providers.says(UPSTREAM[model], Said("Half a word", cut=True))
    got = many.post(hello(model, stream=True))
    assert b"[DONE]" not in got.body
    assert b'"finish_reason":"stop"' not in got.body
    assert b"upstream_bad_response" in got.events[-1]


def test_an_error_in_a_stream(many: Proxy, providers: Providers) -> None:
    def failing(*, begun: bool) -> Answer:
        parts = list(anthropic.failing_stream("m", "overloaded_error", begun=begun))
        return Answer(parts, headers={"content-type": "text/event-stream"})

    providers.says(UPSTREAM["claude-plain"], failing(begun=False), failing(begun=True))
    early, late = (many.post(hello("claude-plain", stream=True)) for _ in range(2))
    assert (early.status, early.json["error"]["type"]) == (529, "overloaded_error")
    assert late.status == 200
    assert b"[DONE]" not in late.body
    assert json.loads(late.events[-1].removeprefix(b"data: "))["error"]["message"] == "Overloaded"


# ------------------------------------------------------------------ refusals and broken answers
def anthropic_error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google_error(code: int, message: str, status: str, **details: Any) -> Json:
    return {"error": {"code": code, "message": message, "status": status, "details": [details]}}


REFUSALS: list[tuple[str, Refused, tuple[int, str | None]]] = [
    ("claude-plain", Refused(401, anthropic_error("authentication_error", f"bad {KEY}")), (502, "upstream_auth")),
    ("claude-plain", Refused(403, anthropic_error("permission_error", f"not for {KEY}")), (403, None)),
    ("claude-plain", Refused(404, anthropic_error("not_found_error", "model: x")), (404, None)),
    ("claude-plain", Refused(429, anthropic_error("rate_limit_error", "slow"), {"retry-after": "7"}), (429, None)),
    ("claude-plain", Refused(500, anthropic_error("api_error", "oh")), (500, None)),
    ("claude-plain", Refused(529, anthropic_error("overloaded_error", "busy")), (529, None)),
    ("claude-plain", Refused(200, b"<html>"), (502, "upstream_bad_response")),
    ("claude-plain", Refused(200, b""), (502, "upstream_bad_response")),
    ("claude-plain", Refused(302, b"", {"location": "http://127.0.0.1:1/"}), (502, "upstream_bad_response")),
    ("gemini-plain", Refused(400, google_error(400, "API key not valid.", "INVALID_ARGUMENT")), (502, "upstream_auth")),
    (
        "gemini-plain",
        Refused(429, google_error(429, "Quota", "RESOURCE_EXHAUSTED", retryDelay="6.5s")),
        (429, None),
    ),
    ("gemini-plain", Refused(503, [google_error(503, "Overloaded", "UNAVAILABLE")]), (503, None)),  # type: ignore[arg-type]
    ("bedrock-plain", Refused(403, {"message": "The security token is invalid"}), (403, None)),
    ("bedrock-plain", Refused(429, {"message": "Too many requests"}), (429, None)),
    ("bedrock-plain", Refused(400, {"message": "Malformed input"}), (400, None)),
]


@pytest.mark.parametrize(("model", "refused", "expected"), REFUSALS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_refusal_in_openais_shape(
    many: Proxy, providers: Providers, model: str, refused: Refused, expected: tuple[int, str | None], streamed: bool
) -> None:
    providers.says(UPSTREAM[model], refused)
    got = many.post(hello(model, stream=streamed))
    assert got.error[:2] == expected
    assert KEY.encode() not in got.body
    assert b"litellm" not in got.body.lower()
    assert b"Traceback" not in got.body
    if got.status == 429 and "bedrock" not in model:
        assert got.headers["retry-after"] == "7"


def test_an_answer_that_says_nothing_is_none(many: Proxy, providers: Providers) -> None:
    providers.says(UPSTREAM["claude-plain"], Said(None, cut=True))
    assert many.post(hello("claude-plain")).error[:2] == (502, "upstream_bad_response")


@pytest.mark.parametrize(
    ("more", "param"),
    [({"seed": 1}, "seed"), ({"logit_bias": {"5": 1}, "n": 2}, "logit_bias"), ({"top_k": 3}, "top_k")],
)
def test_a_field_that_the_provider_does_not_take_is_named(
    many: Proxy, providers: Providers, more: Json, param: str
) -> None:
    got = many.post(hello("claude-plain", **more))
    assert got.error == (400, "invalid_request_error", param)
    assert param in got.json["error"]["message"]
    assert providers.asked == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/a.png", "https://example.invalid/a.png", "http://10.0.0.1/a"])
def test_pictures_are_not_fetched(many: Proxy, providers: Providers, address: str) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": address}}]
    got = many.post({"model": "bedrock-plain", "messages": [{"role": "user", "content": parts}]})
    assert got.error == (400, "invalid_request_error", "messages")
    assert providers.asked == []


def test_what_cannot_be_translated_is_refused(many: Proxy, providers: Providers) -> None:
    got = many.post(hello("claude-plain", tools=[{"type": "function"}]))
    assert got.error[:2] == (400, "invalid_request_error")
    assert providers.asked == []


def test_the_loop_goes_on_while_many_answer(many: Proxy, providers: Providers) -> None:
    with ThreadPoolExecutor(8) as pool:
        bodies = [hello("claude-plain", stream=at % 2 == 0) for at in range(24)]
        statuses = [got.status for got in pool.map(many.post, bodies)]
    assert statuses == [200] * 24


def test_nobody_outside_was_looked_up_or_connected_to(many: Proxy, providers: Providers, reached: list[str]) -> None:
    """By the import of litellm, by the proxy's start and by all the calls of this module."""
    parts = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    for model in PLAIN:
        for stream in (False, True):
            many.post({"model": model, "messages": [{"role": "user", "content": parts}], "stream": stream})
    assert len(reached) > 1
    assert {host for host in reached if host not in ("127.0.0.1", "localhost", "::1", "None")} == set()
