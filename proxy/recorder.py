"""Write down what happened: which rows a request leaves behind, and when they must be committed."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from transom.policies.items import Message
from transom.policies.view import Size
from transom.proxy.errors import BadRequest
from transom.proxy.exchange import Exchange
from transom.proxy.folding import FoldJob
from transom.proxy.sessions import Conversation, Links
from transom.proxy.threads import Answered, HistoryCache, ReadMessages
from transom.proxy.wire.reply import Reply
from transom.storage import identity
from transom.storage.rows import (
    BaselineRow,
    Batch,
    LinkRow,
    MessageRow,
    PreambleRow,
    RequestRow,
    SessionRow,
    SummaryRow,
    UseRow,
)
from transom.storage.store import Store

PATIENCE_S = 0.05  # how long a request's rows wait for its answer's
MOST_PREAMBLES = 64  # remembered as stored, per session: a prompt with a clock makes one a request


class Recorder:
    """Builds batches and hands them to the store; one for the whole process."""

    def __init__(self, store: Store, cache: HistoryCache, links: Links, parse: ReadMessages) -> None:
        self.store, self._cache, self._links, self._parse = store, cache, links, parse
        self.well = True  # whether the newest write was committed

    def begin(self, exchange: Exchange, *, at_once: bool) -> "asyncio.Future[None] | None":
        """Write what is known before the upstream answers: session, new messages, step, baselines, request.

        Unless `at_once`, the rows wait a moment for those of the answer: one commit serves both where it comes fast.
        """
        conversation = exchange.conversation
        if not _keeps(conversation):
            return None
        batch = self._opening(exchange)
        if at_once:
            batch.requests.append(_request_row(exchange, None, complete=False))
            return self._write(exchange, batch)
        exchange.pending = batch
        conversation.state.flush = partial(self._flush, exchange)
        exchange.pending_timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._flush, exchange)
        return None

    def _opening(self, exchange: Exchange) -> Batch:
        """Return all rows of a request but its own: later ones refer to them."""
        conversation, decision = exchange.conversation, exchange.decision
        exchange.opened = True
        self._flush_waiting(conversation)
        batch = Batch()
        self._add_session(batch, conversation)
        _add_preamble(batch, conversation)
        self._add_messages(batch, conversation)
        for row, baseline in conversation.state.unstored.values():
            batch.summaries.append(row)
            batch.baselines.append(baseline)
        if decision is not None and decision.step is not None:
            batch.steps.append(decision.step)
            batch.baselines.extend(decision.baselines)
        return batch

    def _flush(self, exchange: Exchange) -> None:
        batch, exchange.pending, exchange.pending_timer = exchange.pending, None, None
        if batch is not None:
            batch.requests.append(_request_row(exchange, None, complete=False))
            self._write(exchange, batch)

    @staticmethod
    def _flush_waiting(conversation: Conversation) -> None:
        """Write what waits of this session first: rows refer to those of the requests before."""
        flush, conversation.state.flush = conversation.state.flush, None
        if flush is not None:
            flush()

    def _pending(self, exchange: Exchange) -> Batch:
        """Return the rows that still wait, to be written with the end's: all, where a request was never to be sent."""
        if not exchange.opened:
            return self._opening(exchange)
        timer, exchange.pending_timer = exchange.pending_timer, None
        if timer is not None:
            timer.cancel()
        batch, exchange.pending = exchange.pending or Batch(), None
        self._flush_waiting(exchange.conversation)
        return batch

    def again(self, exchange: Exchange) -> "asyncio.Future[None] | None":
        """Write the step and baselines of a view that was made smaller after the upstream refused the first."""
        decision = exchange.decision
        if not _keeps(exchange.conversation) or decision is None or decision.step is None:
            return None
        batch = self._pending(exchange)
        batch.requests.append(_request_row(exchange, None, complete=False))
        batch.steps[:] = [decision.step]
        batch.baselines.extend(decision.baselines)
        return self._write(exchange, batch)

    def _add_session(self, batch: Batch, conversation: Conversation) -> None:
        state, caller, now = conversation.state, conversation.caller, time.time()
        if state.written:
            batch.uses.append(UseRow(state.id, now))
            return
        secret, tenant, key, user = self.store.secret, caller.tenant.name, conversation.key, caller.user
        named = identity.key_hash(secret, tenant, key) if key is not None else None
        marked = identity.user_hash(secret, tenant, user) if user else None
        batch.sessions.append(SessionRow(state.id, tenant, named, conversation.source, marked, now))
        state.written = True

    def _add_messages(self, batch: Batch, conversation: Conversation) -> None:
        thread, history = conversation.thread, conversation.history
        keep_text = conversation.caller.tenant.store == "full"
        first = min(thread.stored, conversation.length)
        for position in range(first, conversation.length):
            message = history.messages[position]
            parent = thread.ids[position - 1] if position else None
            batch.messages.append(_message_row(message, thread.ids[position], conversation, parent, keep_text))
            if conversation.links_secret is not None and message.role == "assistant":
                link = thread.links[position]
                batch.links.append(LinkRow(link, conversation.state.id, thread.ids[position]))
        thread.stored = max(thread.stored, conversation.length)

    async def finish(self, exchange: Exchange, reply: Reply | None, *, complete: bool) -> "asyncio.Future[None] | None":
        """Write the model's answer, and what became of the request."""
        conversation = exchange.conversation
        try:
            made = await self._parse(reply.messages, 0) if reply is not None else []
        except BadRequest:  # what the model said is no message: the client has it, and history can do without
            made = []
        if made:
            exchange.reply_size = Size(made[0].tokens, made[0].items)
        head = conversation.head or None
        ids = [identity.message_id(conversation.state.secret, head, m.digest) for m in made]
        links = self._reply_links(conversation, made)
        for link in links:
            self._links.keep(link, conversation.state.id)
        if not _keeps(conversation):
            return None
        if complete and ids and conversation.tells_heads:
            conversation.heads = ids
            answered = Answered(dict(zip(ids, made, strict=True)), conversation.history.preamble)
            self._cache.answered(conversation.state, conversation.thread, conversation.length, answered)
        batch = self._pending(exchange)
        batch.requests.append(_request_row(exchange, reply, complete=complete, ids=ids))
        keep_text = conversation.caller.tenant.store == "full"
        seen: set[bytes] = set()
        for message, made_id in zip(made, ids, strict=True):
            if made_id not in seen:
                batch.messages.append(_message_row(message, made_id, conversation, head, keep_text))
                seen.add(made_id)
        batch.links.extend(
            LinkRow(link, conversation.state.id, made_id) for link, made_id in zip(links, ids, strict=False)
        )
        return self._write(exchange, batch)

    @staticmethod
    def _reply_links(conversation: Conversation, made: Sequence[Message]) -> list[bytes]:
        secret = conversation.links_secret
        if secret is None:
            return []
        last = conversation.thread.links[conversation.length - 1] if conversation.length else None
        return [identity.link(secret, last, m.digest) for m in made]

    async def summary(self, job: FoldJob, row: SummaryRow, baseline: BaselineRow) -> None:
        """Write a summary and the baseline that uses it, as one; a store that fails leaves both in memory."""
        conversation = job.request.conversation
        conversation.state.unstored[row.id] = (row, baseline)
        if not _keeps(conversation):
            return
        self._flush_waiting(conversation)
        batch = Batch(summaries=[row], baselines=[baseline])  # what it refers to goes with it, pending or not
        self._add_session(batch, conversation)
        self._add_messages(batch, conversation)
        future = self.store.write(batch)
        await asyncio.wait([future])
        if future.exception() is not None:
            self._failed(conversation)
        else:
            self.well, conversation.state.failing = True, False
            conversation.state.unstored.pop(row.id, None)

    def _write(self, exchange: Exchange, batch: Batch) -> "asyncio.Future[None]":
        future = self.store.write(batch)
        future.add_done_callback(lambda done: self._done(exchange, batch, done))
        return future

    def _done(self, exchange: Exchange, batch: Batch, done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            exchange.storage_failed = True
            self._failed(exchange.conversation)
            return
        self.well, exchange.conversation.state.failing = True, False
        for row in batch.summaries:
            exchange.conversation.state.unstored.pop(row.id, None)

    def _failed(self, conversation: Conversation) -> None:
        """Forget that anything was stored: the next request hands it over again, and what is there already stays."""
        self.well = False
        conversation.state.failing = True
        conversation.thread.stored = 0
        conversation.state.written = False
        conversation.state.known_preambles.clear()


def _keeps(conversation: Conversation) -> bool:
    """Tell whether anything is written: nothing of what was erased meanwhile; a delta ends by its failed write."""
    return conversation.persist and (conversation.is_delta or not conversation.state.erased)


def _messages_sent(exchange: Exchange) -> int:
    history, decision = exchange.conversation.history, exchange.decision
    if decision is None:
        return len(history.preamble) + exchange.conversation.length
    view = decision.view
    kept = len(view.head) + exchange.conversation.length - view.start - len(view.omitted)
    beside = (view.summary_message is not None) + (view.recalled is not None) + (exchange.note is not None)
    return len(history.preamble) + kept + beside


def _add_preamble(batch: Batch, conversation: Conversation) -> None:
    state, history = conversation.state, conversation.history
    if not history.preamble or conversation.preamble in state.known_preambles:
        return
    keep_text = conversation.caller.tenant.store == "full"
    payload = b"[" + b",".join(m.payload for m in history.preamble) + b"]" if keep_text else None
    batch.preambles.append(PreambleRow(conversation.preamble, state.id, payload, history.preamble_tokens))
    if len(state.known_preambles) >= MOST_PREAMBLES:
        state.known_preambles.clear()  # forgetting one only means that it is handed over again
    state.known_preambles[conversation.preamble] = None


def _message_row(
    message: Message, message_id: bytes, conversation: Conversation, parent: bytes | None, keep_text: bool
) -> MessageRow:
    return MessageRow(
        id=message_id,
        session=conversation.state.id,
        parent=parent,
        payload=message.payload if keep_text else None,
        tokens=message.tokens,
        items=message.items,
        role=message.role,
    )


def _request_row(exchange: Exchange, reply: Reply | None, *, complete: bool, ids: Sequence[bytes] = ()) -> RequestRow:
    conversation, decision = exchange.conversation, exchange.decision
    usage = reply.usage if reply is not None else None
    return RequestRow(
        id=exchange.request_id,
        session=conversation.state.id,
        head=conversation.head,
        at=time.time(),
        model=exchange.route.model.label,
        policy=exchange.route.policy_name,
        preamble=conversation.preamble if conversation.history.preamble else None,
        step=exchange.policy_hash if decision is not None else None,
        reply=b"".join(ids) or None,
        completion_id=reply.id if reply is not None else None,
        status=exchange.status or None,
        complete=complete,
        window=",".join(exchange.labels),
        tool_limit=exchange.tool_limit,
        messages_before=len(conversation.history.preamble) + conversation.length,
        messages_sent=_messages_sent(exchange),
        tokens_before=decision.before.tokens if decision else None,
        tokens_sent=decision.sent.tokens if decision else None,
        tokens_stable=exchange.stable if decision else None,
        token_limit=exchange.budget.shown,
        usage_prompt=usage.prompt if usage else None,
        usage_cached=usage.cached if usage else None,
        usage_completion=usage.completion if usage else None,
        duration_ms=int(exchange.elapsed() * 1000) if reply is not None else None,
        turn=conversation.turn,
    )
