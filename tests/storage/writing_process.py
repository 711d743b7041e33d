"""A program for tests of kills: writes to a store until it is killed, and says on standard output what is committed.

Arguments: what to do (turns, create, migrate, erase), the SQLite file, and for turns how many sessions talk at once.
"""

import asyncio
import os
import signal
import sys
from typing import Any, cast

from alembic import op

from tests.storage.talk import Talk
from transom.storage import creation
from transom.storage.sql_store import SqlStore
from transom.storage.sqlite_driver import SqliteDriver


def die(*_arguments: Any, **_named: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def talk_on(store: SqlStore) -> None:
    talk, texts = Talk(store), ["hello"]
    while True:
        await store.write(talk.batch(texts, len(texts) - 1))
        print(talk.ids(texts)[-1].hex(), flush=True)
        texts.append(f"message {len(texts)}")


async def turns(file: str, sessions: int) -> None:
    store = SqlStore.open(f"sqlite:///{file}")
    await asyncio.gather(*(talk_on(store) for _ in range(sessions)))


async def erase(file: str) -> None:
    """Erase a session and die before its bytes are gone from the journal."""
    store = SqlStore.open(f"sqlite:///{file}")
    talk = Talk(store)
    await store.write(talk.batch(["canary"]))
    SqliteDriver.wipe = die  # type: ignore[method-assign]
    await store.delete_session(talk.id)


def create(file: str) -> None:
    """Die when the tables are made, and nothing says yet of which version they are."""
    cast("Any", creation.version).create = die
    SqlStore.open(f"sqlite:///{file}")


def migrate(file: str) -> None:
    """Die in the midst of the newest migration."""
    add_column = op.add_column

    def add_and_die(*arguments: Any) -> None:
        add_column(*arguments)
        die()

    op.add_column = add_and_die
    SqlStore.open(f"sqlite:///{file}")


if __name__ == "__main__":
    if sys.argv[1] == "turns":
        asyncio.run(turns(sys.argv[2], int(sys.argv[3])))
    elif sys.argv[1] == "erase":
        asyncio.run(erase(sys.argv[2]))
    else:
        {"create": create, "migrate": migrate}[sys.argv[1]](sys.argv[2])
