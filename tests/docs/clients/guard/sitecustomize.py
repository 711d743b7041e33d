"""Keeps a Python program on this machine: what it looks up or connects to elsewhere fails, and is noted.

Python imports a module of this name from PYTHONPATH by itself. `LOOPBACK_NOTES` names the file for the notes.
"""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Any

NOTES = Path(os.environ["LOOPBACK_NOTES"])


def _is_local(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if not _is_local(host):
        with NOTES.open("a") as notes:
            notes.write(f"{event} {host!r}\n")
        raise OSError(f"{host!r} is not this machine")


sys.addaudithook(_watch)
