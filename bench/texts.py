"""Conversations to send: deterministic words, messages as JSON bytes, and a client that resends its whole history."""

import msgspec

VOCABULARY = """
about account address again agree airport amount answer arrive autumn balance basket before belong better
bicycle blanket booking border bottle branch breakfast bridge budget button cancel carry ceiling change charge
choose clear coffee collect comfort complete concern confirm consider contract copper corner cotton country
course cover curtain customer damage decide deliver depart deposit describe detail direct discount distance
doctor document double early effort eleven enough entrance evening exact example expect express family fasten
february figure finish flight follow foreign forward fragile friday garden gather gentle ground guest handle
harbour heavy hotel
"""
WORDS = VOCABULARY.split()
TOOL_EVERY = 5  # turns; each such turn also brings a tool call and its result

encode = msgspec.json.encode


def text(tokens: int, seed: int) -> str:
    """Return about so many tokens of words; another seed gives another text from its first word on."""
    state, words = seed * 2_654_435_761 + 12_345, [f"{seed}"]
    for _ in range(tokens - 1):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        words.append(WORDS[(state >> 12) % len(WORDS)])
    return " ".join(words)


def message(role: str, content: str | None, **more: object) -> bytes:
    """Return a message as the bytes a client sends."""
    return encode({"role": role, "content": content} | more)


SYSTEM = message("system", "You answer the questions of guests, briefly. " + text(60, 7))


def tool_round(seed: int, tokens: int) -> list[bytes]:
    """Return a tool call and its result."""
    call = {"id": f"call_{seed}", "type": "function", "function": {"name": "look_up", "arguments": f'{{"id":{seed}}}'}}
    return [message("assistant", None, tool_calls=[call]), message("tool", text(tokens, seed), tool_call_id=call["id"])]


class Conversation:
    """What one client sends in the course of a conversation: all of it, again and again.

    Args:
        seed: makes its texts differ from those of every other conversation.
        tokens: about the size of each of its messages.
    """

    def __init__(self, seed: int, tokens: int = 140) -> None:
        self._seed, self._tokens = seed * 1_000_000, tokens
        self.messages = [SYSTEM]
        self.turns = 0

    def ask(self) -> bytes:
        """Add the next question and return the request; every fifth turn ends in a tool's result instead."""
        self.turns += 1
        at = self._seed + self.turns
        self.messages.append(message("user", text(self._tokens, at)))
        if self.turns % TOOL_EVERY == 0:
            self.messages += tool_round(at, self._tokens)
        return body(self.messages)

    def hear(self, answer: str) -> None:
        """Add the answer that came."""
        self.messages.append(message("assistant", answer))


def body(messages: list[bytes], *, model: str = "bench", stream: bool = False) -> bytes:
    """Return the request of these messages."""
    end = b',"stream":true,"stream_options":{"include_usage":true}}' if stream else b"}"
    return b'{"model":' + encode(model) + b',"messages":[' + b",".join(messages) + b"]" + end


def short(seed: int, *, stream: bool = False) -> bytes:
    """Return a request of one system and one user message, unlike every other seed's."""
    return body([SYSTEM, message("user", text(40, seed))], stream=stream)


def long_history(count: int, seed: int) -> list[bytes]:
    """Return so many messages of about 100 tokens each, ending with the user's."""
    made = [SYSTEM]
    for place in range(1, count):
        role = "user" if (count - 1 - place) % 2 == 0 else "assistant"
        made.append(message(role, text(92, seed * 1_000_000 + place)))
    return made
