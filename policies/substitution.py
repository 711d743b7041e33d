"""Put a new text in place of a message's content and count what the message then weighs; knows no wire format.

The other fields stay: a message's name and calls count on, while images and other parts go with the content.
"""

from collections.abc import Callable

from transom.policies.items import Message
from transom.policies.view import Substitute

MESSAGE_TOKENS = 4  # a message counts 4, its texts, its name, and for each call 4 plus name and arguments
CALL_TOKENS = 4
LONGEST_NAME = 24  # tokens: what counts more beside text and calls is no name
WORTH_COUNTING = 65_536  # characters: a longer text is not counted again just to learn whether a name stands beside it


def substitute(
    message: Message, text: str, count: Callable[[str], int], content: Callable[[Message], str]
) -> Substitute:
    """Return `text` as the content of a message, with the o200k tokens of the whole message."""
    tokens = MESSAGE_TOKENS
    for call in message.calls:
        tokens += CALL_TOKENS + count(call.name) + count(call.arguments)
    present = "" if message.media else content(message)
    if present and len(present) <= WORTH_COUNTING:
        name = message.tokens - tokens - count(present)
        tokens += name if 0 < name <= LONGEST_NAME else 0
    return Substitute(text, tokens + count(text))
