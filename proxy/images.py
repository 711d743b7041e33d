"""Estimates the tokens of images and sounds from what a request itself carries; it never fetches anything."""

import base64
import binascii

# OpenAI, "Images and vision", models that count in tiles: scaled down to fit 2,048 × 2,048, then so that the shortest
# side is at most 768; each 512 × 512 tile that is touched counts.
BASE_TOKENS = 85
TILE_TOKENS = 170
TILE = 512
LONGEST = 2048
SHORTEST = 768
UNKNOWN_SIZE = (1024, 1024)
# JPEG keeps its size behind up to some 64 kB segments of metadata.
HEADER_CHARACTERS = 400_000
# OpenAI counts ten audio tokens a second. Where the length is not known: at 128 kbit/s, a usual rate.
AUDIO_TOKENS_PER_SECOND = 10
AUDIO_BYTES_PER_SECOND = 16_000


def image_tokens(url: str, detail: str | None = None) -> int:
    """Return the tokens of an image, of unknown size as 1,024 × 1,024.

    Args:
        url: an address, or the image itself as a base64 `data:` URL.
        detail: `low` counts 85 whatever the size.
    """
    if detail == "low":
        return BASE_TOKENS
    width, height = _data_url_size(url) or UNKNOWN_SIZE
    scale = min(1.0, LONGEST / max(width, height))
    scale = min(scale, SHORTEST / min(width, height))
    across, down = (-(-max(1, round(side * scale)) // TILE) for side in (width, height))
    return BASE_TOKENS + TILE_TOKENS * across * down


def audio_tokens(encoded: str) -> int:
    """Return the tokens of a base64 sound: by the length in a WAV header, else by its bytes."""
    size = len(encoded) * 3 // 4
    head = _decode(encoded[:64])
    rate = int.from_bytes(head[28:32], "little") if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else 0
    return -(-size * AUDIO_TOKENS_PER_SECOND // (rate or AUDIO_BYTES_PER_SECOND))


def image_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from the first bytes of a PNG, GIF, WebP or JPEG file."""
    size = None
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _big(content[16:20]), _big(content[20:24])
    elif content.startswith((b"GIF87a", b"GIF89a")):
        size = _little(content[6:8]), _little(content[8:10])
    elif content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        size = _webp_size(content)
    elif content.startswith(b"\xff\xd8"):
        size = _jpeg_size(content)
    return size if size and min(size) > 0 else None


def _data_url_size(url: str) -> tuple[int, int] | None:
    if not url.startswith("data:"):
        return None
    start = url.find(",", 0, 200) + 1
    head = _decode(url[start : start + 64])
    if head.startswith(b"\xff\xd8"):
        head = _decode(url[start : start + HEADER_CHARACTERS])
    return image_size(head)


def _decode(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded[: len(encoded) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _big(content: bytes) -> int:
    return int.from_bytes(content, "big")


def _little(content: bytes) -> int:
    return int.from_bytes(content, "little")


def _webp_size(content: bytes) -> tuple[int, int] | None:
    """Read the size by the kind of the first chunk (RFC 9649: lossy, lossless, extended)."""
    kind = content[12:16]
    if kind == b"VP8 ":
        return _little(content[26:28]) & 0x3FFF, _little(content[28:30]) & 0x3FFF
    if kind == b"VP8L":
        bits = _little(content[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return _little(content[24:27]) + 1, _little(content[27:30]) + 1
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    """Walk the segments to the frame header (ITU T.81, B.2.2); C4, C8 and CC are no frame headers."""
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        marker = content[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(content[place + 7 : place + 9]), _big(content[place + 5 : place + 7])
        place += 1 if marker == 0xFF else 2 + _big(content[place + 2 : place + 4])
    return None
