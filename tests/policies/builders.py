"""Conversations in a line each, and a driver that runs trimmers on them as the proxy does, without model or store.

A message counts 4 tokens and one for each word, unless `tokens` says otherwise.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from transom.policies.compress import Compress
from transom.policies.history import History
from transom.policies.items import Call, Message
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.protection import Protection
from transom.policies.render import LABEL
from transom.policies.trimmer import Trimmer, TrimRequest, TrimResult
from transom.policies.truncate import Truncate
from transom.policies.turns import Outline
from transom.policies.view import Summary, View


def words(text: str) -> int:
    """Count a text as these tests do."""
    return len(text.split())


def spoken(role: str, text: str, tokens: int | None = None) -> Message:
    """Build a message without calls; empty ones are one item, too."""
    size = 4 + words(text) if tokens is None else tokens
    return Message(role, text.encode(), blake2b(f"{role} {text}".encode(), digest_size=16).digest(), size, 1)


def user(text: str, tokens: int | None = None) -> Message:
    return spoken("user", text, tokens)


def assistant(text: str, tokens: int | None = None) -> Message:
    return spoken("assistant", text, tokens)


def system(text: str, tokens: int | None = None) -> Message:
    return spoken("system", text, tokens)


def calls(*made: tuple[str, str, str], text: str = "", tokens: int | None = None) -> Message:
    """Build an assistant message that calls tools: `(id, tool, arguments)` each."""
    size = 4 + words(text) + sum(4 + words(f"{tool} {arguments}") for _, tool, arguments in made)
    form = f"{text} {made}".encode()
    return Message(
        "assistant",
        form,
        blake2b(form, digest_size=16).digest(),
        size if tokens is None else tokens,
        len(made) + bool(text),
        tuple(Call(*one) for one in made),
    )


def call(identity: str, tokens: int | None = None) -> Message:
    """Build an assistant message with one call of no interest."""
    return calls((identity, "look", "{}"), tokens=tokens)


def result(identity: str, text: str = "found", tokens: int | None = None) -> Message:
    size = 4 + words(text) if tokens is None else tokens
    form = f"{identity}: {text}".encode()
    return Message("tool", form, blake2b(form, digest_size=16).digest(), size, 1, answers=identity)


def function_call(name: str, arguments: str = "{}") -> Message:
    """Build a legacy `function_call` message."""
    return calls((f"function:{name}", name, arguments))


def function_result(name: str, text: str = "found", tokens: int | None = None) -> Message:
    """Build a legacy `function` message."""
    made = result(f"function:{name}", text, tokens)
    return Message("function", made.payload, made.digest, made.tokens, 1, answers=made.answers)


def thread(*messages: Message) -> History:
    """Build a history; the leading system messages are its preamble."""
    first = next((p for p, m in enumerate(messages) if not m.is_system), len(messages))
    return History(messages[:first], messages[first:])


def exchanges(count: int, tokens: int = 10) -> list[Message]:
    """Build `count` turns of one question and one answer, `tokens` each."""
    pairs = [(user(f"question {n}", tokens), assistant(f"answer {n}", tokens)) for n in range(1, count + 1)]
    return [message for pair in pairs for message in pair]


def segment(messages: Iterable[Message]) -> Outline:
    """Outline a whole thread, message by message."""
    outline = Outline()
    for message in messages:
        outline.append(message)
    return outline


def policy(**keys: object) -> Policy:
    return Policy.model_validate(keys)


def finished(coroutine: Coroutine[Any, Any, TrimResult]) -> TrimResult:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: TrimResult = done.value
        return value
    raise AssertionError("a trimmer waited for something but a summary")


@dataclass
class Asked:
    """One request for a summary."""

    span: tuple[int, ...]
    upto: int
    previous: Summary | None


@dataclass
class Writer:
    """Write summaries of given sizes, in turn, and remember what each one stands for.

    A size counts the tokens of the whole message; None is a model that fails. As the proxy does, it refuses a text
    that is not smaller than what it replaces, or where only items were too many, one that is larger than `allowance`.
    """

    sizes: Sequence[int | None] = (8,)
    allowance: int = 8
    asked: list[Asked] = field(default_factory=list)
    stands_for: dict[bytes, frozenset[int]] = field(default_factory=dict)
    history: History = field(default_factory=thread)
    view: View = field(default_factory=View)
    over_tokens: bool = False
    failed: bool = False

    async def __call__(
        self, span: Sequence[int], upto: int | None = None, placed: Callable[[Summary], View] | None = None
    ) -> Summary | None:
        end = span[-1] + 1 if upto is None else upto
        previous = self.view.summary
        size = self.sizes[len(self.asked) % len(self.sizes)]
        self.asked.append(Asked(tuple(span), end, previous))
        if size is None or not self.accepts(size, span, previous):
            self.failed = True
            return None
        identity = len(self.asked).to_bytes(16, "big")
        known = self.stands_for[previous.id] if previous else frozenset()
        self.stands_for[identity] = known | set(span)
        return Summary(identity, f"{LABEL} {len(self.asked)}", size, end)

    def accepts(self, size: int, span: Sequence[int], previous: Summary | None) -> bool:
        replaced = sum(self.history.messages[p].tokens for p in span) + (previous.tokens if previous else 0)
        return size < replaced if self.over_tokens else size <= self.allowance


def ask(
    history: History,
    view: View | None = None,
    *,
    limits: Limits,
    policy: Policy | None = None,
    writer: Writer | None = None,
) -> TrimRequest:
    """Build what a trimmer is asked; the most a summary may count is the writer's allowance."""
    writer, view = writer or Writer(), view or View()
    writer.history, writer.view, writer.failed = history, view, False
    writer.over_tokens = limits.over_tokens(view.size(history))
    chosen = policy or Policy.model_validate({})
    return TrimRequest(
        history, view, limits, chosen, writer.allowance, writer, words, lambda message: message.payload.decode()
    )


def compressed(history: History, view: View | None = None, **asked: Any) -> TrimResult:
    return finished(Compress().trim(ask(history, view, **asked)))


def truncated(history: History, view: View | None = None, **asked: Any) -> TrimResult:
    return finished(Truncate().trim(ask(history, view, **asked)))


def sent(history: History, view: View) -> list[str]:
    """Return what is sent after the preamble, as text; the summary is shown as its label."""
    kept = [history.messages[p].payload.decode() for p in view.positions(len(history))]
    return [LABEL, *kept] if view.summary_message else kept


@dataclass
class Step:
    """What one trimmer made of a view."""

    name: str
    before: View
    result: TrimResult
    asked: int  # for how many summaries


@dataclass
class Decided:
    """What is sent, how that came about, and whether later requests start from it."""

    start: View
    view: View
    steps: list[Step]
    persist: bool


def decide(history: History, start: View, limits: Limits, policy: Policy, writer: Writer) -> Decided:
    """Run compress, then truncate, each on what the one before left, until every limit holds.

    A view made after a summary failed is for this request only.
    """
    view, steps, persist = start, list[Step](), True
    within = limits.reachable(Protection(history, policy).bare(view))
    trimmers: tuple[tuple[str, Trimmer], ...] = (("compress", Compress()), ("truncate", Truncate()))
    for name, trimmer in trimmers:
        if within.hold(view.size(history)):
            break
        before = len(writer.asked)
        outcome = finished(trimmer.trim(ask(history, view, limits=within, policy=policy, writer=writer)))
        steps.append(Step(name, view, outcome, len(writer.asked) - before))
        persist = persist and not writer.failed
        if outcome.trimmed:
            view, persist = outcome.view, persist and outcome.persist
    return Decided(start, view, steps, persist and bool(steps) and view != start)


@dataclass
class Session:
    """Requests of one client, each decided from the deepest view that was remembered and that its thread shares."""

    writer: Writer = field(default_factory=Writer)
    remembered: list[tuple[View, tuple[Message, ...]]] = field(default_factory=list)

    def starting_view(self, history: History, policy: Policy) -> View:
        guard = Protection(history, policy)
        # In a thread that went back, a view may lack what is now the last message: there it is of no use.
        shared = [
            view
            for view, before in self.remembered
            if history.messages[: len(before)] == list(before) and all(map(view.keeps, guard.positions()))
        ]
        view = max(reversed(shared), key=lambda v: v.reach, default=View())
        broken = guard.broken() if view.start else frozenset()
        return view.without((), broken) if broken else view

    def request(self, history: History, limits: Limits, policy: Policy) -> Decided:
        decided = decide(history, self.starting_view(history, policy), limits, policy, self.writer)
        for step in decided.steps:
            if step.name == "compress" and step.result.trimmed:
                self.remember(history, step.result.view)  # also where a later trimmer's cut is not kept
        if decided.persist:
            self.remember(history, decided.view)
        return decided

    def remember(self, history: History, view: View) -> None:
        baseline = view.baseline()
        if baseline.reach:
            self.remembered.append((baseline, tuple(history.messages[: baseline.reach])))
