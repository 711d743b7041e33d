"""Strikes keys out of what an upstream wrote; it does not know who wrote it or what else stands in it."""

import re
from collections.abc import Iterable

REDACTED = "[redacted]"
# Shorter ones are placeholders ("none", "dummy") that occur in ordinary words.
SECRET_LENGTH = 8
# A key as providers quote it: the first characters, a run of mask characters, perhaps the last ones. Tried at the
# beginnings of words and in bounded length only, so that a megabyte of letters costs what its length costs.
MASKED = re.compile(r"(?<![A-Za-z0-9_\-])[A-Za-z0-9_\-]{2,64}(?:\*{3,}|\.{3,}|…+|•{3,}|[xX]{6,})[A-Za-z0-9_\-]*")
KEY_SHAPED = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|r8|hf|nvapi|pplx|tgp|fw|csk|ak)[-_][A-Za-z0-9_\-]{16,}|\bAIza[\w\-]{20,}"
)


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """Return the text without the secrets: whole, quoted in part with a mask, or of the shape of a provider's key.

    Args:
        text: what an upstream wrote.
        secrets: keys that went up with the request; None and placeholders shorter than 8 characters are ignored.
    """
    known = [secret for secret in secrets if secret is not None and len(secret) >= SECRET_LENGTH]
    for secret in known:
        text = text.replace(secret, REDACTED)
    text = KEY_SHAPED.sub(REDACTED, text)
    return MASKED.sub(lambda found: REDACTED if _quotes(found[0], known) else found[0], text)


def _quotes(masked: str, secrets: Iterable[str]) -> bool:
    """Tell whether a masked word shows the beginning of a secret, of these or of any provider's shape."""
    start = re.split(r"[*.…•]|[xX]{6}", masked, maxsplit=1)[0]
    return start.startswith(("sk-", "pk-", "gsk_", "xai-", "AIza")) or any(
        secret.startswith(start[:4]) for secret in secrets
    )
