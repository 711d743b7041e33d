"""The commands of docs/deltas.md do what it says, and its errors are those there are."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

from tests.proxy.e2e.conftest import sqlite
from tests.proxy.e2e.served import Got, Proxy, request, serving
from transom.proxy import errors

PAGE = (Path(__file__).parents[2] / "docs" / "deltas.md").read_text("utf-8")
BLOCK = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SHOWN = "3f6b0c…"


def run(command: str, proxy: Proxy) -> Got:
    words = shlex.split(command)
    options = list(pairwise(words))
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    body = next(value for name, value in options if name == "-d")
    return request(proxy.port, body=body.encode(), headers=headers)


def test_the_commands(tmp_path: Path) -> None:
    assert BLOCK is not None
    commands = re.findall(r"^curl .*?(?=^#|^curl|\Z)", BLOCK[1].replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    mapping = {
        "model_list": [{"model_name": "demo", "litellm_params": {"model": "transom/demo"}}],
        "storage": {"url": sqlite(tmp_path), "timeout_s": 60, "commit_wait_s": 60},
    }
    with serving(mapping) as proxy:
        first = run(commands[0], proxy)
        second = run(commands[1].replace(SHOWN, first.headers["x-transom-head"]), proxy)
        assert (first.status, second.status, len(commands)) == (200, 200, 2)
        assert len(proxy.sql("SELECT * FROM messages")) == 4


def test_the_errors_are_those_there_are() -> None:
    known = {(e.status, e.code) for e in vars(errors).values() if isinstance(e, type) and hasattr(e, "code")}
    named = re.findall(r"^\| (\d{3}) `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(named) == 5
    assert {(int(status), code) for status, code in named} <= known
