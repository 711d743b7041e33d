"""What a message's content is: its identity, its tokens, its texts; it knows one content at a time, not messages."""

from collections.abc import Iterator
from typing import Any

import msgspec

from transom.proxy.images import audio_tokens, image_tokens
from transom.proxy.tokens import BYTES_PER_TOKEN, Counter
from transom.proxy.wire.raw import quote

# Content types by which models hand their thinking back; a summary is made of what was said.
_REASONING = frozenset(("thinking", "redacted_thinking", "reasoning"))
_IMAGES = frozenset(("image_url", "input_image", "image"))
_MARKERS = {"input_audio": "[audio]", "file": "[file]"} | dict.fromkeys(_IMAGES, "[image]")


def canonical_content(content: Any) -> Any:
    """Return the value whose JSON is the content's identity.

    Null, `""` and absent are one; a list of one text part is its text; of text parts only the text counts, of other
    parts all but `cache_control`. Injective: texts become strings and nothing else does.
    """
    if not isinstance(content, list):
        return "" if content is None else content
    parts = [_canonical_part(part) for part in content]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts


def _canonical_part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    return _without_cache_control(part)


def _without_cache_control(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_cache_control(inner) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_without_cache_control(inner) for inner in value]
    return value


def count_content(content: Any, counter: Counter) -> int:
    """Return the tokens of a content: texts in o200k, images and sounds by the provider's rules, the rest by bytes."""
    if isinstance(content, str):
        return counter.count(content)
    if isinstance(content, list):
        return sum(_count_part(part, counter) for part in content)
    return 0 if content is None else _by_bytes(content)


def holds_media(content: Any) -> bool:
    """Tell whether a content holds anything but text, so that its tokens are an estimate."""
    return isinstance(content, list) and any(_text_of(part) is None for part in content)


def _count_part(part: Any, counter: Counter) -> int:
    text = _text_of(part)
    if text is not None:
        return counter.count(text)
    if isinstance(part, dict):
        if _kind(part) in _IMAGES:
            return _count_image(part)
        sound = part.get("input_audio")
        if isinstance(sound, dict) and isinstance(sound.get("data"), str):
            return audio_tokens(sound["data"])
    return _by_bytes(part)


def _count_image(part: dict[str, Any]) -> int:
    image = part.get("image_url")
    if not isinstance(image, dict):
        image = {"url": image, "detail": part.get("detail")}
    url, detail = image.get("url"), image.get("detail")
    return image_tokens(url if isinstance(url, str) else "", detail if isinstance(detail, str) else None)


def _by_bytes(value: Any) -> int:
    return -(-len(value if isinstance(value, msgspec.Raw) else quote(value)) // BYTES_PER_TOKEN)


def _kind(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""


def _text_of(part: Any) -> str | None:
    """Return the text of a part: a bare string, `text` or `refusal`."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        for key in ("text", "refusal"):
            if isinstance(part.get(key), str):
                return str(part[key])
    return None


def readable(content: Any) -> Iterator[str]:
    """Yield what a person would read, in order: texts, and a marker such as `[image]` for each other part."""
    for part in content if isinstance(content, list) else [content]:
        if part is not None and _kind(part) not in _REASONING:
            text = _text_of(part)
            yield _MARKERS.get(_kind(part), "[other content]") if text is None else text
