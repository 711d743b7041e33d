"""Compress before it is needed: after an answer, when the thread's next request would start above the soft mark."""

import asyncio
from collections.abc import Callable

import structlog

from transom.policies.limits import Limits
from transom.policies.strategy import SUMMARIZING
from transom.policies.view import Size
from transom.proxy.exchange import Exchange
from transom.proxy.folding import Summaries
from transom.proxy.logs import describe
from transom.proxy.windowing import Windowing

log = structlog.get_logger("transom.ahead")


class Ahead:
    """Starts folds in the background, one at a time for each thread."""

    def __init__(self, windowing: Windowing, summaries: Summaries, draining: Callable[[], bool]) -> None:
        self._windowing, self._summaries, self._draining = windowing, summaries, draining
        self._tasks: dict[tuple[bytes, bytes], asyncio.Task[None]] = {}

    def consider(self, exchange: Exchange) -> None:
        """Fold what the thread's next request would need folded, unless this was its first or it is being done."""
        request, decision, policy = exchange.request, exchange.decision, exchange.route.policy
        if request is None or decision is None or policy.compact_at is None or self._draining():
            return
        if SUMMARIZING.isdisjoint(policy.trimmers) or exchange.conversation.match == "new_root":
            return
        size = decision.sent + exchange.reply_size
        if not _above(size, exchange.budget.limits, policy.compact_at):
            return
        key = (request.state.id, request.thread.ids[0])
        if key in self._tasks or self._summaries.running(request) is not None:
            return
        task = self._tasks[key] = asyncio.create_task(self._windowing.fold_ahead(request, size))
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: tuple[bytes, bytes], done: "asyncio.Task[None]") -> None:
        self._tasks.pop(key, None)
        if not done.cancelled() and (fault := done.exception()) is not None:
            log.error("background fold failed", error=describe(fault))

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _above(size: Size, limits: Limits, mark: float) -> bool:
    tokens = limits.tokens is not None and size.tokens > mark * limits.tokens
    return tokens or (limits.items is not None and size.items > mark * limits.items)
