"""A request as it goes out, and its bytes (RFC 9112, 3 to 6); it sends nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ssl import SSLContext
from typing import NamedTuple

from yarl import URL

from transom.proxy.errors import UpstreamUnreachable

__all__ = ["HttpRequest", "Origin"]

# Without a body these say nothing about its length: some servers refuse a GET that does (RFC 9110, 8.6).
BODILESS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})


class Origin(NamedTuple):
    """Who is talked to; `tls` is None for plain HTTP, else as in `HttpRequest`."""

    host: str
    port: int
    tls: SSLContext | bool | None


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, complete but for what frames it (host, content-length).

    Attributes:
        method: in capitals.
        url: absolute, http or https.
        headers: in order; a name may stand several times.
        body: sent as it is.
        tls: how a server proves who it is: the system's way (True), by a context, or not at all (False).
    """

    method: str
    url: URL
    headers: Sequence[tuple[str, str]]
    body: bytes
    tls: SSLContext | bool = True

    @property
    def origin(self) -> Origin:
        """Return who is to be talked to."""
        host, port, secure = _place(self.url)
        return Origin(host, port, self.tls if secure else None)

    def head(self) -> bytes:
        """Return everything before the body.

        Raises UpstreamUnreachable for a header that would end early: what follows a line break in it would be read as
        another header, or as another request (RFC 9112, 11.1).
        """
        lines = [_start(self.method, self.url)]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.body or self.method not in BODILESS:
            lines.append(f"content-length: {len(self.body)}")
        text = "\r\n".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines) or "\0" in text:
            raise UpstreamUnreachable("A header for the model's server holds characters that cannot be sent.")
        try:
            return f"{text}\r\n\r\n".encode("latin-1")
        except UnicodeEncodeError:
            return f"{text}\r\n\r\n".encode()


@lru_cache(maxsize=512)
def _place(url: URL) -> tuple[str, int, bool]:
    if url.scheme not in ("http", "https") or not url.raw_host or not url.port:
        raise ValueError("not an absolute HTTP address")
    return url.raw_host, url.port, url.scheme == "https"


@lru_cache(maxsize=512)
def _start(method: str, url: URL) -> str:
    return f"{method} {url.raw_path_qs} HTTP/1.1\r\nhost: {url.host_port_subcomponent}"
