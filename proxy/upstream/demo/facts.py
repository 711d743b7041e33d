"""Facts of the shape "my X is Y" in what the demo model was shown, and questions for them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Fact", "asked", "facts", "recall"]

OWNER = r"(?P<owner>the user's|user's|my|our|your|the)"
# A dot inside a word, as in 3.5 or a@b.example, does not end the value; "and my …" does.
FACT = re.compile(
    rf"\b{OWNER}\s+(?P<what>[\w'’ -]{{1,40}}?)\s+(?:is|are|was|will be)\s+"
    r"(?:now\s+|called\s+|named\s+)?(?P<value>(?:(?!\s+and\s+(?:my|our|your|the)\s)(?:[^.!?;\n]|\.(?=\w))){1,80})",
    re.IGNORECASE,
)
ASKED = re.compile(
    rf"\b(?:(?:what|who|where|when|which)(?:\s+is|\s+are|\s+was|'s|’s)|(?:know|remember|recall|tell\s+me|remind\s+me\s+of))"
    rf"\s+{OWNER}\s+(?P<what>[^?.!,\n]{{1,60}})",
    re.IGNORECASE,
)
FIELD = re.compile(r'"(?P<what>[\w -]{1,40})"\s*:\s*(?:"(?P<text>[^"]{1,80})"|(?P<number>-?\d[\d.]*))')


@dataclass(frozen=True, slots=True)
class Fact:
    """Hold one thing that was said: whose, what, and its value."""

    owner: str
    what: str
    value: str


def facts(text: str) -> list[Fact]:
    """Return the facts that a text states, in its order; fields of JSON objects count as `the`."""
    said = [
        Fact(_owner(found["owner"]), _plain(found["what"]), found["value"].strip(" ,"))
        for found in FACT.finditer(text)
        if not ASKED.search(text[max(0, found.start() - 12) : found.end()])
    ]
    fields = [
        Fact("the", _plain(found["what"]), found["text"] or found["number"] or "") for found in FIELD.finditer(text)
    ]
    return said + fields


def asked(text: str) -> Fact | None:
    """Return the fact, without value, that a text asks for."""
    found = ASKED.search(text)
    return Fact(_owner(found["owner"]), _plain(found["what"]), "") if found else None


def recall(question: Fact, texts: Sequence[str]) -> Fact | None:
    """Return the newest fact that answers a question.

    Args:
        question: from `asked`.
        texts: what was shown, oldest first.
    """
    for text in reversed(texts):
        for fact in reversed(facts(text)):
            if question.what in _names(fact.what):
                return Fact(question.owner, question.what, fact.value)
    return None


def _names(what: str) -> Iterable[str]:
    """Return the ways to ask for something: a dog that is called Rex has the dog's name Rex."""
    return (what, f"{what}'s name", f"name of {what}")


def _owner(owner: str) -> str:
    """Return whose it is, as the model would say it."""
    return {"the": "the", "our": "our"}.get(owner.lower(), "your")


def _plain(what: str) -> str:
    words = what.lower().replace("’", "'").replace("_", " ").split()
    while words and words[-1] in {"again", "now", "please", "then"}:
        words.pop()
    return " ".join(words)
