import json
import threading
from typing import Any, cast

import pytest

from tests.policies.builders import user
from tests.proxy.builders import MODEL, Talk, tenant
from transom.policies.summary_size import SummarySize
from transom.policies.view import Summary, View
from transom.proxy.folding import FoldJob
from transom.proxy.metrics import Metrics
from transom.proxy.summaries import SummaryReply
from transom.proxy.summary_calls import SummaryCalls, UpstreamOf
from transom.proxy.upstream.base import UpstreamRequest
from transom.proxy.wire.chat import OFF_LOOP_BYTES

ANSWER = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Short."}}]}


class Model:
    """A server that keeps what it was sent, and where it was written."""

    status = 200

    def __init__(self) -> None:
        self.received: dict[str, Any] = {}

    async def send(self, request: UpstreamRequest) -> "Model":
        self.received = json.loads(request.body)
        return self

    async def read(self, _limit: int) -> bytes:
        return json.dumps(ANSWER).encode()

    async def close(self) -> None:
        pass


def unplaced(_summary: Summary) -> View:
    raise AssertionError


async def called(server: Model, record: str) -> SummaryReply:
    talk = Talk(user("hello"))
    talk.tenant = tenant()
    job = FoldJob(talk.request(), View(), (0,), 1, unplaced, True, SummarySize(10), False, 0)
    calls = SummaryCalls(UpstreamOf({MODEL.provider: cast("Any", server)}), Metrics())
    return await calls(job, "Sum up.", record, 77)


@pytest.mark.parametrize("characters", [9, OFF_LOOP_BYTES + 1])
async def test_a_record_of_any_length_is_sent_as_it_is(characters: int) -> None:
    server, record = Model(), ('"ö\n' * characters)[:characters]
    assert await called(server, record) == SummaryReply("Short.", "stop")
    assert server.received["messages"] == [
        {"role": "system", "content": "Sum up."},
        {"role": "user", "content": record},
    ]
    assert (server.received["max_tokens"], server.received["stream"]) == (77, False)


@pytest.mark.parametrize(("characters", "beside"), [(OFF_LOOP_BYTES, False), (OFF_LOOP_BYTES + 1, True)])
async def test_a_long_record_is_written_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, characters: int, beside: bool
) -> None:
    threads = []

    def written(*_: object) -> bytes:
        threads.append(threading.current_thread())
        return b"{}"

    monkeypatch.setattr("transom.proxy.summary_calls._body", written)
    await called(Model(), "x" * characters)
    assert [thread is not threading.main_thread() for thread in threads] == [beside]
