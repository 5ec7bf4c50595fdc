"""Processes that kill themselves: `python -m tests.cli.killed_move fill URL` leaves runs in a store;
`python -m tests.cli.killed_move COMMIT WHEN FROM TO` moves a store, and dies at a commit.

COMMIT counts the commits of the move from 1; WHEN is `before` or `after`. It copies two rows at a time.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from perdure.cli.app import run_command
from perdure.store import moving
from perdure.store.postgres.moving import MovablePostgres
from perdure.store.sqlite.moving import MovableSqlite

COMMITS = ("write", "freeze", "set_mark")


def kill_at(commit: int, when: str) -> None:
    done = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done == commit and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = await method(*args, **kwargs)
            if done == commit and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for side in (MovableSqlite, MovablePostgres):
        for name in COMMITS:
            setattr(side, name, counted(getattr(side, name)))


def fill_and_die(url: str) -> None:
    from tests.cli.test_move import fill  # noqa: PLC0415 - which imports nothing of this

    sys.stdout.write(json.dumps(asyncio.run(fill(url))))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill_and_die(sys.argv[2])
    number, moment, *urls = sys.argv[1:]
    moving.MOST_ROWS = 2
    kill_at(int(number), moment)
    sys.exit(run_command(["move", *urls]))
