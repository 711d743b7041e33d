"""Servers of other providers on loopback: one that speaks the APIs of Anthropic, Gemini, Bedrock and OpenAI."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from aiohttp import web

from tests.proxy.e2e.fake_upstream import Answer, FakeUpstream
from tests.proxy.upstream.litellm import anthropic, bedrock, gemini
from tests.proxy.upstream.litellm.said import Json, Refused, Said

KEY = "sk-provider-0123456789abcdef"
PATHS: list[tuple[re.Pattern[str], ModuleType]] = [
    (re.compile(r"/v1/messages$"), anthropic),
    (re.compile(r"/models/([^/]+):(?:stream)?[gG]enerateContent$"), gemini),
    (re.compile(r"/model/([^/]+)/converse(?:-stream)?$"), bedrock),
]
# Whose summaries are told by their instruction.
SUMMARISER = "You maintain the running summary"


@dataclass(eq=False)
class Asked:
    """One request as it came to a provider."""

    api: ModuleType
    model: str
    stream: bool
    body: Json
    headers: dict[str, str]
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def is_summary(self) -> bool:
        return SUMMARISER in self.api.system(self.body)

    @property
    def texts(self) -> list[str]:
        return list(self.api.texts(self.body))

    @property
    def system(self) -> str:
        return str(self.api.system(self.body))


Script = Callable[[Asked], Said | Refused | Answer]


def ordinary(asked: Asked) -> Said:
    """Answer anything with a sentence, a summary request with a short summary."""
    return Said("They talked about rivers.") if asked.is_summary else Said(f"Answer to {len(asked.texts)} texts.")


class Providers(FakeUpstream):
    """The server. What a provider would refuse is noted in `refusals`; requests of OpenAI's shape are the base's."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, Script] = {}
        super().__init__()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, model: str, *answers: Said | Refused | Answer | Script) -> None:
        """Answer the next requests for a model so, the last one for ever; summaries are ordinary."""
        rest: Iterator[Said | Refused | Answer | Script] = iter(answers)
        last = answers[0]

        def script(asked: Asked) -> Said | Refused | Answer:
            nonlocal last
            if asked.is_summary:
                return ordinary(asked)
            last = next(rest, last)
            return last(asked) if callable(last) else last

        self.answers[model] = script

    def clear(self) -> None:
        super().clear()
        self.asked, self.answers = [], {}

    def to_model(self, model: str) -> list[Asked]:
        """Return the requests for a model that are no summary requests."""
        return [asked for asked in self.asked if asked.model == model and not asked.is_summary]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        for pattern, api in PATHS:
            if found := pattern.search(request.path):
                return await self._handle_foreign(request, api, found)
        return await super()._handle(request)

    async def _handle_foreign(self, request: web.Request, api: ModuleType, found: re.Match[str]) -> web.StreamResponse:
        body = json.loads(await request.read())
        model = found[1] if found.groups() else str(body["model"])
        streams = bool(body.get("stream")) or "stream" in request.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(api, model, streams, body, headers)
        self.asked.append(asked)
        if (wrong := api.problem(body)) is not None:
            self.refusals.append(wrong)
        said = self.answers.get(model, ordinary)(asked)
        try:
            return await self._answer(request, said if isinstance(said, Answer) else self._in_words(asked, said))
        except (asyncio.CancelledError, ConnectionResetError):
            asked.gone.set()
            raise

    def _in_words(self, asked: Asked, said: Said | Refused) -> Answer:
        if isinstance(said, Refused):
            body = said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode()
            return Answer([body], said.status, {"content-type": "application/json"} | said.headers)
        number = len(self.asked)
        if not asked.stream:
            return Answer([asked.api.whole(said, asked.model, number)])
        kind = bedrock.STREAM if asked.api is bedrock else "text/event-stream"
        return Answer(list(asked.api.stream(said, asked.model, number)), headers={"content-type": kind})


def model_entry(server: Providers, provider: str, upstream: str, name: str | None = None, **info: object) -> Json:
    """Return an entry of model_list for a model of a provider that the server plays."""
    params: Json = {"model": f"{provider}/{upstream}", "api_key": KEY, "api_base": server.root}
    if provider == "bedrock":
        params = {
            "model": f"bedrock/converse/{upstream}",
            "aws_bedrock_runtime_endpoint": server.root,
            "aws_access_key_id": "AKIAEXAMPLE",
            "aws_secret_access_key": KEY,
            "aws_region_name": "us-east-1",
        }
    elif provider == "hosted_vllm":
        params["api_base"] = server.url
    return {"model_name": name or upstream, "litellm_params": params, "model_info": info}
