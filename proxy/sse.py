"""Framing of server-sent events, in bytes; it knows no JSON and no meaning.

The rules (WHATWG HTML, "Server-sent events"):

1. A line ends with LF, CRLF or CR; the three may be mixed.
2. An event ends with a blank line: two line ends in a row end one, and so does a line end at its very beginning.
3. A CR that is the last byte so far may be half of a CRLF: it waits for the next byte, or for the end.
4. Of an event only its `data` lines are its payload, joined by LF, each without one leading space.
   Lines that begin with a colon are comments.
5. Bytes are never decoded, so UTF-8 may be split anywhere.
"""

import re

from transom.proxy.errors import UpstreamBroken

__all__ = ["SseSplitter", "events", "is_framed", "is_named_error", "payload"]

EVENT_LIMIT = 32 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
# Atomic groups, or the blank line would be found in the middle of a CRLF.
EVENT = re.compile(rb"(?>[^\r\n]+(?>\r\n|\n|\r))*+(?>\r\n|\n|\r)")
LINE_END = re.compile(rb"\r\n|\n|\r")
FRAMED = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
ERROR_EVENT = re.compile(rb"(?:^|[\r\n])event: ?error[\r\n]")


class SseSplitter:
    """Cut a stream of bytes at the ends of events, whatever pieces it comes in.

    Args:
        limit: the most bytes of an unfinished event that are kept.
    """

    __slots__ = ("_limit", "_pending", "_searched")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._searched = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes and return the whole events that are complete now, as they came; often empty.

        Raises:
            UpstreamBroken: an unfinished event is longer than the limit (`too_large`).
        """
        pending = self._pending
        if not pending and chunk.endswith((b"\n\n", b"\n\r\n")):
            return chunk
        pending += chunk
        end = _last_end(pending, max(0, self._searched - 3))
        if end:
            block = bytes(pending[:end])
            del pending[:end]
        else:
            block = b""
        self._searched = len(pending)
        if self._searched > self._limit:
            raise UpstreamBroken("too_large", "The model's server sent an event that is too large.")
        return block

    @property
    def rest(self) -> bytes:
        """Return what has come of an event that is not complete; at the end of a stream its cut-off tail."""
        return bytes(self._pending)

    def ended(self) -> bytes:
        """Return the rest at the end of a stream as a whole event: with the blank line, should it have been cut off."""
        rest = self.rest
        if b"".join(events(rest)) == rest:
            return rest
        if rest.endswith(b"\r"):
            return rest + b"\r"
        return rest + (b"\n" if rest.endswith(b"\n") else b"\n\n")


def _last_end(buffer: bytearray, start: int) -> int:
    """Return where the last complete event of the buffer ends, looking from `start` on; 0 if there is none."""
    plain = buffer.rfind(b"\n\n", start) + 2
    end = plain if plain > 1 else 0
    if buffer.find(b"\r", start) >= 0:
        stop = len(buffer) - 1 if buffer.endswith(b"\r") else len(buffer)
        for ends in (b"\n\r", b"\r\r"):
            found = buffer.rfind(ends, start, stop)
            if found >= 0:
                after = found + 2
                end = max(end, after + 1 if buffer[after : after + 1] == b"\n" else after)
    if not end and start == 0:
        # Rule 2: the buffer begins where an event begins.
        blank = LINE_END.match(buffer)
        if blank and (blank[0] != b"\r" or len(buffer) > 1):
            end = blank.end()
    return end


def events(block: bytes) -> list[bytes]:
    """Return the events of a block from `SseSplitter.feed`, each with its blank line, comments included."""
    # Nearly all are like this, and split so in a third of the time, which counts where one holds megabytes.
    if block.endswith(b"\n\n") and not (block.startswith(b"\n") or b"\r" in block or b"\n\n\n" in block):
        return [event + b"\n\n" for event in block[:-2].split(b"\n\n")]
    return EVENT.findall(block)


def payload(event: bytes) -> bytes:
    """Return the data of one event, complete or cut off; empty if it has none, as a comment has."""
    line = event.rstrip(b"\r\n")
    if line.startswith(BOM):
        line = line[3:]
    if line.startswith(b"data:") and b"\n" not in line and b"\r" not in line:
        return line[6:] if line.startswith(b" ", 5) else line[5:]
    parts = []
    for text in LINE_END.split(line):
        if text.startswith(b"data:"):
            parts.append(text[6:] if text.startswith(b" ", 5) else text[5:])
        elif text == b"data":
            parts.append(b"")
    return b"\n".join(parts)


def is_framed(body: bytes) -> bool:
    """Tell whether an answer consists of events, by its first line: JSON never begins so."""
    return FRAMED.match(body) is not None


def is_named_error(event: bytes) -> bool:
    """Tell whether an event has the name `error`."""
    return ERROR_EVENT.search(event) is not None
