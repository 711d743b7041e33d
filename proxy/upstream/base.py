"""The port to a model: one request out, one answer back; it does not know providers, windows or storage."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from transom.proxy.config.settings import Model

__all__ = ["Deadlines", "Upstream", "UpstreamReply", "UpstreamRequest"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long an upstream may take, in seconds.

    Attributes:
        connect_s: to an established connection, name look-up and TLS included.
        first_byte_s: from the call to the response's headers.
        idle_stream_s: between two pieces of the answer.
        total_s: from the call to the answer's end.
    """

    connect_s: float = 10
    first_byte_s: float = 300
    idle_stream_s: float = 120
    total_s: float = 3600


@dataclass(slots=True)
class UpstreamRequest:
    """Hold one call to a model.

    Attributes:
        model: where it goes.
        body: the bytes sent, unchanged.
        headers: allow-listed request headers (see `headers.request_headers`); authorization is the adapter's.
        bearer: the client's own key, used in place of the model's `api_key`.
        stream: whether server-sent events are expected.
        path: below the model's `api_base`, percent-encoded, with the query if there is one.
        method: in capitals.
    """

    model: Model
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    bearer: str | None = None
    stream: bool = False
    path: str = "chat/completions"
    method: str = "POST"


class UpstreamReply(Protocol):
    """Be one answer, of whatever status: 4xx and 5xx are answers too, never exceptions.

    It is read once, with `read` or with `chunks`. Whoever got it closes it, also after reading to the end.
    """

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers, names in lower case, without those of the transfer (length, encodings)."""
        ...

    async def read(self, limit: int) -> bytes:
        """Return the whole body, decoded.

        Raises:
            UpstreamBroken: it is longer than `limit` bytes (`too_large`), or the connection died.
            UpstreamTimeout: it took too long.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body as they come; a cancelled `anext` may be followed by another.

        Raises:
            UpstreamBroken: the connection died before the end.
            UpstreamTimeout: the next piece, or the whole, took too long.
        """
        ...

    async def close(self) -> None:
        """Release the call; one that is not read to its end is cancelled at once. Always safe, also twice."""
        ...


class Upstream(Protocol):
    """Reach models in one way."""

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Return the answer once its status and headers are known.

        Raises:
            UpstreamUnreachable: no connection came about.
            UpstreamTimeout: no connection or no headers in time.
            UpstreamBadResponse: a redirect, or something that is not HTTP.
        """
        ...

    async def aclose(self) -> None:
        """Close idle connections; calls in flight are cancelled."""
        ...
