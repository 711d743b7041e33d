"""The hot look-ups as plain functions on a cursor; they run on a reader's thread and know no event loop.

Lists of ids are cut into chunks and padded to a few fixed lengths, so that only a few texts of SQL ever exist and the
drivers' statement caches keep them parsed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, bindparam, column, exists, literal_column, select, values
from sqlalchemy.engine import Dialect

from transom.storage import schema
from transom.storage.driver import Compiled, Cursor, compile_statement
from transom.storage.hex_type import Hex, as_bytes
from transom.storage.rows import BaselineRow, FactorRow, Loaded, MessageRow, StepRow, SummaryRow
from transom.storage.statements import session_seq

BUCKETS = (4, 16, 64, 128, 256, 512)
"""How many ids a statement takes."""
FEW = 64
"""Up to so many ids are looked up without asking first whether it is worth it."""


def _id(name: str) -> Any:
    """Return a parameter that is an id."""
    return bindparam(name, type_=Hex)


def _many(count: int) -> list[Any]:
    """Return as many ids, named by their place."""
    return [_id(f"id{place}") for place in range(count)]


def chunks(ids: Sequence[bytes]) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Yield (bucket, parameters) that together hold all ids; the last one is repeated to fill its bucket."""
    for start in range(0, len(ids), BUCKETS[-1]):
        chunk = ids[start : start + BUCKETS[-1]]
        bucket = next(size for size in BUCKETS if size >= len(chunk))
        padded = [*chunk, *[chunk[-1]] * (bucket - len(chunk))]
        yield bucket, {f"id{place}": value for place, value in enumerate(padded)}


def _known(count: int) -> Select[Any]:
    """Those of the ids that are stored, from the index alone, each with whether its session has baselines at all."""
    table, base = schema.messages, schema.baselines
    folded = exists().where(base.c.session == session_seq())
    return select(table.c.id, folded).where(table.c.session == session_seq(), table.c.id.in_(_many(count)))


def _baselines() -> Select[Any]:
    """Baselines and their summaries in one statement, so that they are of one moment."""
    base, summary = schema.baselines, schema.summaries
    matching = and_(summary.c.id == base.c.summary, summary.c.session == base.c.session)
    return (
        select(*(c for table in (base, summary) for c in table.c if c.name not in ("seq", "session")))
        .select_from(base.outerjoin(summary, matching))
        .where(base.c.session == session_seq())
        .order_by(base.c.position.desc(), base.c.seq)
    )


def _links(count: int) -> Select[Any]:
    """The newest session of each link: one index seek a link, however many sessions began alike."""
    table, session = schema.links, schema.sessions
    asked = values(column("link", Hex), name="asked").data([(one,) for one in _many(count)]).cte("asked")
    newest = (
        select(session.c.id)
        .join_from(table, session, session.c.seq == table.c.session)
        .where(table.c.link == asked.c.link)
        .order_by(table.c.session.desc())
        .limit(literal_column("1"))
        .scalar_subquery()
    )
    return select(asked.c.link, newest.label("session"))


def _step() -> Select[Any]:
    table = schema.steps
    asked = [table.c[name] == _id(name) for name in ("head", "preamble", "policy")]
    return select(table.c.recipe).where(table.c.session == session_seq(), *asked)


def _thread() -> Select[Any]:
    """A message and all before it, found parent by parent, as far as one that the caller has."""
    table = schema.messages
    ours = table.c.session == session_seq()
    walk = select(table.c.seq, table.c.parent).where(table.c.id == _id("head"), ours).cte("walk", recursive=True)
    walk = walk.union_all(
        select(table.c.seq, table.c.parent)
        .join_from(walk, table, table.c.id == walk.c.parent)
        .where(ours, walk.c.parent != _id("after"))
    )
    names = ("id", "parent", "payload", "tokens", "items", "role")
    return (
        select(*(table.c[name] for name in names))
        .join_from(walk, table, table.c.seq == walk.c.seq)
        .order_by(walk.c.seq)  # ordered by its own, newer SQLites go through all of `messages` for it
    )


class _ById:
    """A look-up by many ids: one statement per bucket, compiled when it is first needed (the large take long)."""

    def __init__(self, statement: Callable[[int], Select[Any]], dialect: Dialect) -> None:
        self._statement = statement
        self._dialect = dialect
        self._compiled: dict[int, Compiled] = {}

    def compiled(self, bucket: int) -> Compiled:
        """Return the statement for so many ids."""
        found = self._compiled.get(bucket)
        if found is None:
            found = self._compiled[bucket] = compile_statement(self._statement(bucket), self._dialect)
        return found

    def rows(self, cursor: Cursor, ids: Sequence[bytes], others: Mapping[str, bytes]) -> Iterator[tuple[Any, ...]]:
        """Execute it for all ids, chunk by chunk."""
        for bucket, parameters in chunks(ids):
            statement = self.compiled(bucket)
            cursor.execute(statement.sql, statement.bind({**parameters, **others}))
            yield from cursor.fetchall()


class Lookups:
    """The look-ups, compiled for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: Select[Any]) -> Compiled:
            return compile_statement(statement, dialect)

        at = schema.baselines.c.at
        self._known = _ById(_known, dialect)
        self._baselines = _ById(lambda count: _baselines().where(at.in_(_many(count))), dialect)
        self._deepest = compiled(_baselines().limit(literal_column(str(FEW))))
        self._links = _ById(_links, dialect)
        self._session = compiled(select(schema.sessions.c.seq).where(schema.sessions.c.id == _id("session")))
        self._step = compiled(_step())
        self._thread = compiled(_thread())
        self._factors = compiled(select(schema.factors.c.model, schema.factors.c.ratios, schema.factors.c.updated_at))
        self._ping = compiled(select(schema.meta.c.key).limit(literal_column("1")))

    def load(self, cursor: Cursor, session: bytes, ids: Sequence[bytes], stored: int) -> Loaded:
        """Return what is stored of a session's thread, the first `stored` of its messages only sampled."""
        asked = [*ids[: min(stored, 1)], *ids[max(stored - 1, 1 if stored else 0) :]]
        if len(asked) > FEW and not self._exists(cursor, session):
            return Loaded(set(), [], {})
        found = list(self._known.rows(cursor, asked, {"session": session}))
        known = {bytes.fromhex(row[0]) for row in found}
        if not any(folded for _, folded in found):
            return Loaded(known, [], {})
        rows = self._baselines_at(cursor, session, ids if stored else [one for one in ids if one in known])
        baselines = [
            base
            for base in (_baseline(session, row) for row in rows)
            if base.at in known or (base.position < stored and ids[base.position] == base.at)
        ]
        read = (_summary(session, row[6:]) for row in rows if row[6] is not None)
        wanted = {base.summary for base in baselines}
        summaries = {summary.id: summary for summary in read if summary.id in wanted}
        return Loaded(known, sorted(baselines, key=lambda baseline: -baseline.position), summaries)

    def _baselines_at(self, cursor: Cursor, session: bytes, stored: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """Return the baselines at these messages, maybe others of the session too: most sessions have very few."""
        if len(stored) > FEW:
            cursor.execute(self._deepest.sql, self._deepest.bind({"session": session}))
            rows = cursor.fetchall()
            if len(rows) < FEW:
                return rows
        return list(self._baselines.rows(cursor, stored, {"session": session}))

    def _exists(self, cursor: Cursor, session: bytes) -> bool:
        """Say whether a session is stored."""
        cursor.execute(self._session.sql, self._session.bind({"session": session}))
        return cursor.fetchone() is not None

    def step(self, cursor: Cursor, session: bytes, head: bytes, preamble: bytes, policy: bytes) -> StepRow | None:
        """Return the step of this very request."""
        asked = {"session": session, "head": head, "preamble": preamble, "policy": policy}
        cursor.execute(self._step.sql, self._step.bind(asked))
        row = cursor.fetchone()
        return None if row is None else StepRow(session, head, preamble, policy, row[0].encode())

    def find_session(self, cursor: Cursor, links: Sequence[bytes]) -> tuple[bytes, bytes] | None:
        """Return the first of the links that is stored, with its newest session."""
        found = {bytes.fromhex(link): session for link, session in self._links.rows(cursor, links, {}) if session}
        return next(((link, bytes.fromhex(found[link])) for link in links if link in found), None)

    def thread(self, cursor: Cursor, session: bytes, head: bytes, after: bytes) -> list[MessageRow]:
        """Return the messages from the root, or the one after `after`, to `head`."""
        cursor.execute(self._thread.sql, self._thread.bind({"session": session, "head": head, "after": after}))
        return [
            MessageRow(bytes.fromhex(identity), session, as_bytes(parent), *others)
            for identity, parent, *others in cursor.fetchall()
        ]

    def factors(self, cursor: Cursor) -> dict[str, FactorRow]:
        """Return the token ratios by model."""
        cursor.execute(self._factors.sql)
        return {model: FactorRow(model, tuple(json.loads(ratios)), at) for model, ratios, at in cursor.fetchall()}

    def ping(self, cursor: Cursor) -> None:
        """Read one row."""
        cursor.execute(self._ping.sql, self._ping.bind({}))
        cursor.fetchall()


def _baseline(session: bytes, row: Sequence[Any]) -> BaselineRow:
    """Return a baseline from its columns, in the table's order; more may follow them."""
    at, position, kind, policy, recipe, summary = row[:6]
    policy = bytes.fromhex(policy)
    return BaselineRow(session, bytes.fromhex(at), position, kind, policy, recipe.encode(), as_bytes(summary))


def _summary(session: bytes, row: Sequence[Any]) -> SummaryRow:
    """Return a summary from its columns, in the table's order."""
    identity, upto, position, previous, text, tokens, model, prompt_version, constraints, ledger = row
    return SummaryRow(
        id=bytes.fromhex(identity),
        session=session,
        upto=bytes.fromhex(upto),
        position=position,
        previous=as_bytes(previous),
        text=text.decode(),
        tokens=tokens,
        model=model,
        prompt_version=prompt_version,
        constraints=tuple(json.loads(constraints)),
        ledger=tuple(json.loads(ledger)),
    )
