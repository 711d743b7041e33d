"""A program that has everything imported and serves in a child it forks, for tests that kill servers.

Arguments: the configuration's file and a port. For each line on standard input a child is begun; its id is printed.
Whoever started the program kills the children; it waits for each.
"""

import os
import sys
from functools import cache
from pathlib import Path
from unittest.mock import patch

from transom.proxy.config.load import load
from transom.proxy.config.watch import LiveSettings
from transom.proxy.logs import configure
from transom.proxy.server import serve
from transom.proxy.tokens import Tokenizer


def main(file: Path, port: int) -> None:
    """Read the encoding once for all servers: it takes a second."""
    tokenizer = cache(Tokenizer)
    tokenizer()
    with patch("transom.proxy.app.Tokenizer", tokenizer):
        fork_on_demand(file, port)


def fork_on_demand(file: Path, port: int) -> None:
    """Begin a server for each line."""
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(file.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
            configure("json")
            os._exit(serve(LiveSettings(lambda: load(file)), host="127.0.0.1", port=port))
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
