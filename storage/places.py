"""Where a turn may be added to a stored conversation; runs on a reader's thread and knows no event loop.

A conversation grows at its heads. A head is a whole answer, or the end of what a client sent, that no answered turn
follows. Turns that were never answered, or not to the end, do not count: their client sends them again, or others.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, and_, bindparam, literal_column, select, true
from sqlalchemy.engine import Dialect

from transom.storage import schema
from transom.storage.driver import Compiled, Cursor, compile_statement
from transom.storage.hex_type import Hex, as_bytes
from transom.storage.identity import ID_BYTES
from transom.storage.rows import Place, PreambleRow
from transom.storage.statements import session_seq


def _id(name: str) -> Any:
    """Return a parameter that is an id."""
    return bindparam(name, type_=Hex)


def _message() -> Select[Any]:
    table = schema.messages
    return select(table.c.seq, table.c.parent).where(table.c.session == session_seq(), table.c.id == _id("id"))


def _requests_at() -> Select[Any]:
    """The requests that ended in a message, in the one before it, or in the turn that is to be added; newest first."""
    request, preamble = schema.requests, schema.preambles
    matching = and_(preamble.c.session == request.c.session, preamble.c.id == request.c.preamble)
    ends = request.c.head.in_([_id(name) for name in ("at", "before", "turn_head")])
    return (
        select(
            *(request.c[name] for name in ("head", "complete", "reply", "turn")),
            *(preamble.c[name] for name in ("id", "payload", "tokens")),
        )
        .select_from(request.outerjoin(preamble, matching))
        .where(request.c.session == session_seq(), ends)
        .order_by(request.c.seq.desc())
    )


def _later() -> Select[Any]:
    """The messages that came after one: what follows it is among them, since parents are stored first."""
    table = schema.messages
    later = table.c.seq > bindparam("seq", type_=table.c.seq.type)
    return select(table.c.id, table.c.parent).where(table.c.session == session_seq(), later).order_by(table.c.seq)


def _answered() -> Select[Any]:
    table = schema.requests
    return select(table.c.head).where(table.c.session == session_seq(), table.c.complete == true())


class Places:
    """Finds places; compiled for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: Select[Any]) -> Compiled:
            return compile_statement(statement, dialect)

        self._message = compiled(_message())
        self._requests_at = compiled(_requests_at())
        self._later = compiled(_later())
        self._answered = compiled(_answered())
        self._any_answered = compiled(_answered().limit(literal_column("1")))

    def find(self, cursor: Cursor, session: bytes, parent: bytes | None, head: bytes) -> Place:
        """Return what is stored where a turn that ends in `head` is to be added after `parent`."""
        if parent is None:
            requests = self._rows(cursor, self._requests_at, session=session, at=head, before=head, turn_head=head)
            is_head = not self._rows(cursor, self._any_answered, session=session)
            return Place(True, is_head, bool(requests), _turns(requests), None)
        found = self._rows(cursor, self._message, session=session, id=parent)
        if not found:
            return Place(False, False, False, frozenset(), None)
        seq, before = found[0][0], as_bytes(found[0][1]) or b""
        rows = self._rows(cursor, self._requests_at, session=session, at=parent, before=before, turn_head=head)
        ending = [row for row in rows if bytes.fromhex(row[0]) == parent]
        making = [row for row in rows if bytes.fromhex(row[0]) == before]
        own = [row for row in rows if bytes.fromhex(row[0]) == head]
        is_head = _ends_turn(parent, ending, making) and not self._followed(cursor, session, parent, seq)
        return Place(True, is_head, bool(own), _turns(own), _preamble(session, [*ending, *making]))

    def _followed(self, cursor: Cursor, session: bytes, parent: bytes, seq: int) -> bool:
        """Tell whether an answered turn comes after a message."""
        below = {parent.hex()}
        for message, before in self._rows(cursor, self._later, session=session, seq=seq):
            if before in below:
                below.add(message)
        return len(below) > 1 and any(row[0] in below for row in self._rows(cursor, self._answered, session=session))

    @staticmethod
    def _rows(cursor: Cursor, statement: Compiled, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor.execute(statement.sql, statement.bind(parameters))
        return cursor.fetchall()


def _ends_turn(message: bytes, ending: Sequence[Sequence[Any]], making: Sequence[Sequence[Any]]) -> bool:
    """Tell whether a message is the last one of an unanswered request, or one of a whole answer."""
    if ending:
        return not any(row[1] for row in ending)
    return any(row[1] and message in _ids(as_bytes(row[2]) or b"") for row in making)


def _ids(joined: bytes) -> set[bytes]:
    return {joined[start : start + ID_BYTES] for start in range(0, len(joined), ID_BYTES)}


def _turns(rows: Sequence[Sequence[Any]]) -> frozenset[bytes]:
    return frozenset(turn for row in rows if (turn := as_bytes(row[3])) is not None)


def _preamble(session: bytes, rows: Sequence[Sequence[Any]]) -> PreambleRow | None:
    """Return the preamble of the newest of the requests that a thread goes on from."""
    for *_, identity, payload, tokens in rows[:1]:
        if identity is not None:
            return PreambleRow(bytes.fromhex(identity), session, payload, tokens)
    return None
