"""Fields by whose names litellm is steered, from a client: a direct model gets them as they came, others never."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.proxy.e2e.conftest import Serve
from tests.proxy.e2e.fake_upstream import FakeUpstream
from tests.proxy.e2e.served import user
from transom.proxy.upstream.litellm.arguments import OPENAI, READ_HERE
from transom.proxy.upstream.litellm.library import load

# litellm's parts warn when they are first imported.
pytestmark = pytest.mark.filterwarnings("ignore")

OURS = {"model", "messages", "stream", "stream_options"}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Open a port that nobody may call; afterwards nobody has."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.setblocking(False)
        yield listener
        with pytest.raises(BlockingIOError):
            listener.accept()


def values(listener: socket.socket) -> list[Any]:
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    return [address, 1, True, None, [address], {"api_base": address, "url": address, "model": "openai/x"}]


def test_a_direct_model_gets_them_as_they_came(serve: Serve, upstream: FakeUpstream, listener: socket.socket) -> None:
    proxy = serve({"plain": {"preset": "chat"}})
    names = sorted((load().steering | OPENAI | READ_HERE) - OURS)
    assert len(names) > 400
    for value in values(listener):
        body = json.dumps({"model": "plain", "messages": [user("Hello.")]} | dict.fromkeys(names, value)).encode()
        assert proxy.post(body).status == 200, value
        assert upstream.received[-1].body == body


def test_other_models_get_none_of_them(serve: Serve, upstream: FakeUpstream, listener: socket.socket) -> None:
    params = {"model": "hosted_vllm/plain", "api_base": upstream.url, "api_key": "none"}
    proxy = serve({"plain": {"preset": "chat"}}, model_list=[{"model_name": "plain", "litellm_params": params}])
    for name in sorted(load().steering - OPENAI - READ_HERE):
        value = values(listener)[len(name) % 6]
        got = proxy.post({"model": "plain", "messages": [user("Hello.")], name: value})
        assert got.error == (400, "invalid_request_error", name)
    assert upstream.received == []
