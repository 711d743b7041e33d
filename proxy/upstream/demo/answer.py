"""What the demo model says: one request in, a text or tool calls out; it knows no HTTP and no wire shapes."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from transom.proxy.upstream.demo.extract import PROMPT, extract
from transom.proxy.upstream.demo.facts import asked, facts, recall
from transom.proxy.upstream.demo.plan import Planned, fill, plan
from transom.proxy.upstream.demo.request import ChatRequest, Shown

__all__ = ["Answer", "answer", "broken_pairs"]

WHAT_I_AM = "I am Transom's demo model: a set of rules that runs offline, not a language model."
WHO = re.compile(r"\b(?:who|what) are you\b|\bare you (?:an? |really )", re.IGNORECASE)
WORDS = re.compile(r"\b(\d{1,5}) words\b", re.IGNORECASE)
FILLER = ("Every", "word", "of", "this", "text", "is", "here", "to", "be", "counted", "and", "streamed.")
QUOTE_CHARS = 80
RESULT_CHARS = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold what is said: a text, or calls; `cut` tells that the output limit ended it."""

    text: str = ""
    calls: tuple[Planned, ...] = ()
    cut: bool = False

    @property
    def finish_reason(self) -> str:
        """Return OpenAI's word for why it ended."""
        if self.calls:
            return "tool_calls"
        return "length" if self.cut else "stop"


def broken_pairs(messages: list[Shown]) -> str | None:
    """Return OpenAI's sentence about the first tool call or result without its other half; None if all have theirs."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            waiting.remove(message.tool_call_id)
        elif waiting:
            break
        elif message.role == "assistant":
            waiting = [call.id for call in message.tool_calls or ()]
    if waiting:
        return "An assistant message with 'tool_calls' must be followed by tool messages responding to each of them."
    return None


def answer(request: ChatRequest, count: Callable[[str], int]) -> Answer:
    """Return what the model says to a request; its rules stand in the package's docstring."""
    messages = request.messages
    if messages and messages[0].role in ("system", "developer") and messages[0].text.startswith(PROMPT):
        record = "\n".join(message.text for message in messages[1:])
        return _fitted(extract(messages[0].text, record, request.output_limit, count), request, count)
    calls = _calls(request)
    if calls:
        return Answer(calls=tuple(calls))
    text = _results(request.current) or _reply(request)
    if request.response_format and request.response_format.get("type") == "json_object":
        text = msgspec.json.encode({"answer": text}).decode()
    return _fitted(text, request, count)


def _calls(request: ChatRequest) -> list[Planned]:
    """Return the calls of the step that is due: as many steps are done as calling messages follow the user's."""
    functions = request.functions
    choice = request.tool_choice
    if not functions or choice == "none":
        return []
    turn = request.current
    text = turn[0].text if turn else ""
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        functions = [function for function in functions if function.name == name]
    steps = plan(text, functions)
    if request.parallel_tool_calls is False:
        steps = [[call] for step in steps for call in step]
    done = sum(1 for message in turn if message.tool_calls)
    if done < len(steps):
        return steps[done]
    if functions and (choice == "required" or isinstance(choice, dict)):
        return [(functions[0].name, fill(functions[0], text))]
    return []


def _results(turn: list[Shown]) -> str:
    """Return what the tool results of a turn say; empty without any."""
    names = {call.id: call.function.name for message in turn for call in message.tool_calls or ()}
    said = [
        f"{names.get(message.tool_call_id or '', 'the tool')} says {_short(message.text, RESULT_CHARS)}."
        for message in turn
        if message.role == "tool"
    ]
    return f"Here is what I found: {' '.join(said)}" if said else ""


def _reply(request: ChatRequest) -> str:
    """Return the answer to a text that calls no tool."""
    turn = request.current
    text = turn[0].text if turn else ""
    words = WORDS.search(text)
    question = asked(text)
    said = facts(text)
    if WHO.search(text):
        return WHAT_I_AM
    if words:
        return " ".join(FILLER[at % len(FILLER)] for at in range(int(words[1])))
    if question:
        before = [message.text for message in request.messages[: len(request.messages) - len(turn)]]
        known = recall(question, before)
        if known:
            return f"{known.owner.capitalize()} {known.what} is {known.value}."
        return f"I don't know {question.owner} {question.what}: nothing that I was shown tells it."
    if said:
        reply = "Noted: " + "; ".join(f"{fact.owner} {fact.what} is {fact.value}" for fact in said) + "."
    else:
        reply = f"You said: “{_short(text, QUOTE_CHARS)}”."
    shown = sum(1 for message in request.messages if message.role == "user")
    if shown <= 1 and not any(message.role == "assistant" for message in request.messages):
        return f"{reply} {WHAT_I_AM}"
    return f"{reply} I was shown {len(request.messages)} messages, {shown} of them yours."


def _short(text: str, chars: int) -> str:
    """Return a text on one line, without the dot at its end, cut between words."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= chars else line[:chars].rpartition(" ")[0] + " …"


def _fitted(text: str, request: ChatRequest, count: Callable[[str], int]) -> Answer:
    """Return the text within the output limit, cut between words."""
    limit = request.output_limit
    if limit is None or count(text) <= limit:
        return Answer(text)
    words = text.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(words[:middle])) <= limit else (low, middle - 1)
    return Answer(" ".join(words[:low]), cut=True)
