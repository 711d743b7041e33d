"""The demo's client: the official openai library and nothing of the proxy but its address.

It sends the whole conversation each time, runs the tools it is asked for, and notes what the response headers say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from openai import DefaultHttpxClient, OpenAI, OpenAIError
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

from transom.proxy.cli.demo.script import SYSTEM, offered, run_tool
from transom.proxy.cli.demo.server import ProxyFailed

MODEL = "demo"
TIMEOUT_S = 30.0
MOST_REQUESTS = 20
"""Per turn; more would mean that the tool-call cap does not act."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the headers of one response say, and how many messages the client had sent."""

    request: str
    messages: int
    before: int
    sent: int
    limit: int
    stable: int
    window: tuple[str, ...]
    tool_limit: str | None


@dataclass(slots=True)
class Played:
    """One turn as it went: a reading per request, the number of calls per round, the answer's text."""

    text: str
    streamed: bool
    readings: list[Reading] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    answer: str = ""

    @property
    def last(self) -> Reading:
        """Return the reading of the turn's last request, which is its largest."""
        return self.readings[-1]


class Traveller:
    """Holds a conversation."""

    def __init__(self, url: str) -> None:
        # Nothing of the environment (keys, proxies) is used: the demo stays on this machine.
        self._client = OpenAI(
            base_url=url,
            api_key="not-needed",
            timeout=TIMEOUT_S,
            max_retries=0,
            http_client=DefaultHttpxClient(trust_env=False),
        )
        self._tools = offered()
        self.messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def say(self, text: str, *, streamed: bool) -> Played:
        """Send a user message and go on until the model answers without calling a tool. Raises ProxyFailed."""
        played = Played(text, streamed)
        self.messages.append({"role": "user", "content": text})
        for _ in range(MOST_REQUESTS):
            try:
                message, headers = self._streamed() if streamed else self._whole()
            except OpenAIError as error:
                raise ProxyFailed(f"a request failed. {error}") from None
            played.readings.append(_reading(headers, len(self.messages)))
            self.messages.append(cast(ChatCompletionMessageParam, message.model_dump(exclude_none=True)))
            calls = [call for call in message.tool_calls or () if call.type == "function"]
            if not calls:
                played.answer = message.content or ""
                return played
            played.rounds.append(len(calls))
            for call in calls:
                result = run_tool(call.function.name, call.function.arguments)
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise ProxyFailed(f"the model still called tools after {MOST_REQUESTS} requests of one turn.")

    def _whole(self) -> tuple[ChatCompletionMessage, Mapping[str, str]]:
        raw = self._client.chat.completions.with_raw_response.create(
            model=MODEL, messages=self.messages, tools=self._tools
        )
        return raw.parse().choices[0].message, raw.headers

    def _streamed(self) -> tuple[ChatCompletionMessage, Mapping[str, str]]:
        raw = self._client.chat.completions.with_raw_response.create(
            model=MODEL, messages=self.messages, tools=self._tools, stream=True
        )
        state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
        for chunk in raw.parse():
            state.handle_chunk(chunk)
        return state.get_final_completion().choices[0].message, raw.headers


def _reading(headers: Mapping[str, str], messages: int) -> Reading:
    """Read the headers. Raises ProxyFailed where they are not those of the proxy."""
    try:
        tokens = dict(pair.split("=", 1) for pair in headers["x-transom-tokens"].split(";"))
        return Reading(
            request=headers["x-request-id"],
            messages=messages,
            before=int(tokens["before"]),
            sent=int(tokens["sent"]),
            limit=int(tokens["limit"]),
            stable=int(tokens["stable"]),
            window=tuple(headers["x-transom-window"].split(",")),
            tool_limit=headers.get("x-transom-tool-limit"),
        )
    except (KeyError, ValueError):
        raise ProxyFailed("a response came without the proxy's headers.") from None
