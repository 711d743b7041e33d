"""Leave out libraries that others load where they find them, and do without where they do not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


@contextmanager
def left_out(*names: str) -> Iterator[None]:
    """Let no import inside find these packages, unless they are loaded already; afterwards they are found again."""
    modules = cast("dict[str, Any]", sys.modules)
    hidden = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None stands for a module that is not there
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
