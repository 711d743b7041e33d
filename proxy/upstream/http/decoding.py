"""Bodies that come encoded although they were asked for plain (RFC 9110, 8.4); it reads nothing itself."""

import zlib

__all__ = ["Decoder", "DecodingError"]

PIECE_BYTES = 256 * 1024
GZIP, ZLIB, RAW = 31, 15, -15  # what zlib calls their window bits
MAGIC = b"\x1f\x8b"


class DecodingError(Exception):
    """Say that bytes are not in the encoding they were said to be in."""


class Decoder:
    """Decode gzip or deflate piece by piece, so that a small body cannot become a large one unseen.

    Raises DecodingError for any other encoding.
    """

    def __init__(self, encoding: str) -> None:
        if encoding not in ("deflate", "gzip", "x-gzip"):
            raise DecodingError
        self._deflate = encoding == "deflate"
        self._several = not self._deflate  # gzip's data may come in members (RFC 1952, 2.2)
        self._begun = False
        self._packed = b""
        self._inflater = zlib.decompressobj(ZLIB if self._deflate else GZIP)

    def feed(self, packed: bytes) -> None:
        """Take the next bytes of the body; `take` returns what they say."""
        if self._deflate and packed:
            # Many servers send the bare format of RFC 1951 under this name; RFC 1950's begins with method 8.
            self._deflate = False
            if packed[0] & 0x0F != 8:
                self._inflater = zlib.decompressobj(RAW)
        self._begun = True
        self._packed += packed

    def take(self) -> bytes:
        """Return the next decoded bytes, nothing if more must be fed first."""
        decoded = b""
        while not decoded and self._member():
            try:
                decoded = self._inflater.decompress(self._packed, PIECE_BYTES)
            except zlib.error:
                raise DecodingError from None
            ended = self._inflater.eof
            self._packed = self._inflater.unused_data if ended else self._inflater.unconsumed_tail
            if not ended:
                break
        return decoded

    def end(self) -> None:
        """Raise DecodingError if the body ended too early; one without a byte is empty in any encoding."""
        if self._begun and not self._inflater.eof:
            raise DecodingError

    def _member(self) -> bool:
        """Tell whether there is a member to decode; what follows the last one is dropped, or it would be held."""
        if not self._inflater.eof:
            return True
        if self._several and self._packed and MAGIC.startswith(self._packed[:2]):
            self._inflater = zlib.decompressobj(GZIP)
            return True
        self._several = self._several and not self._packed
        self._packed = b""
        return False
