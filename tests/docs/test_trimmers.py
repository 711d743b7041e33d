"""The example of docs/trimmers.md works as it stands there."""

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType

from tests.policies.builders import assistant, thread, user
from transom.policies.limits import Limits
from transom.policies.options import Policy
from transom.policies.registry import trimmers
from transom.policies.trimmer import TrimRequest
from transom.policies.view import Summary, View
from transom.proxy.config.own_trimmers import load_trimmer

PAGE = Path(__file__).parents[2] / "docs" / "trimmers.md"


async def no_summary(*_: object, **__: object) -> Summary | None:
    return None


def test_the_example_removes_old_answers_and_keeps_what_users_said() -> None:
    source = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert source is not None
    module = ModuleType("my_trimmers")
    exec(source.group(1), module.__dict__)
    sys.modules["my_trimmers"] = module
    try:
        [(name, trimmer)] = trimmers(("my_trimmers:DropPlainAnswers",), load_trimmer)
    finally:
        del sys.modules["my_trimmers"]
    history = thread(user("a", 10), assistant("b", 10), user("c", 10), assistant("d", 10), user("e", 10))
    request = TrimRequest(
        history, View(), Limits(tokens=40), Policy.model_validate({}), 0, no_summary, len, lambda message: message.role
    )
    result = asyncio.run(trimmer.trim(request))
    assert name == "my_trimmers:DropPlainAnswers"
    assert list(result.view.positions(len(history))) == [0, 2, 3, 4]
    assert result.trimmed
    assert result.persist
