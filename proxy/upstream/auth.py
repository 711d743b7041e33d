"""What of an upstream's refusal may be shown: the rules for 401, 403, 404 and keys quoted in error texts.

1. 401 with the configured key, or because there is none, is the operator's matter: 502 `upstream_auth`, nothing of the
   upstream's text.
2. 401 with the client's own key passes through.
3. Any other error passes through, the configured key redacted; without one in it, byte for byte.
4. What is no JSON object, as the pages of gateways are, is put into one.
"""

import re
from collections.abc import Iterable

import msgspec

from transom.proxy.config.settings import Model
from transom.proxy.errors import UpstreamAuth
from transom.proxy.redaction import redact
from transom.proxy.wire.report import presentable

__all__ = ["error_code", "error_reply", "redact_bytes"]

WORD = re.compile(r"[a-z_]{1,64}")  # no digits: nothing that could be a key or an id


def error_reply(status: int, body: bytes, *, model: Model, bearer: str | None) -> bytes:
    """Return the body of an upstream's 4xx or 5xx as the client may see it.

    Args:
        status: the upstream's.
        body: the upstream's.
        model: where the request went, with the secrets that went along.
        bearer: the client's own key if that went up; None if the model's did.

    Raises:
        UpstreamAuth: the upstream refused the configured key, or asks for one where none is configured.
    """
    if bearer is not None:
        return presentable(status, body)
    if status == 401:
        keyless = model.provider == "direct" and not model.secrets  # litellm finds keys in the environment, too
        raise UpstreamAuth(UpstreamAuth.keyless) if keyless else UpstreamAuth()
    return redact_bytes(presentable(status, body), model.secrets)


def redact_bytes(body: bytes, secrets: Iterable[str | None]) -> bytes:
    """Return the bytes without secrets, as `redact` does for text; the rest stays byte for byte."""
    return redact(body.decode("utf-8", "surrogateescape"), secrets).encode("utf-8", "surrogateescape")


class _Error(msgspec.Struct):
    code: object = None
    type: object = None


class _Refusal(msgspec.Struct):
    error: _Error


_decode = msgspec.json.Decoder(_Refusal).decode


def error_code(body: bytes) -> str:
    """Return for the log the code, else the type, of an upstream's error: one plain word, `upstream_error` without."""
    try:
        error = _decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "upstream_error"
    words = (word for word in (error.code, error.type) if isinstance(word, str) and WORD.fullmatch(word))
    return next(words, "upstream_error")
