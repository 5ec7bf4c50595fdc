"""A process that forks while it has a ledger open: `python -m tests.operations.forked PLACE VALUE`."""

import asyncio
import os
import sys
from collections.abc import Awaitable
from typing import Any

from perdure import PerdureError
from perdure.operations import Call, Ledger, Operation, SpawnedCall


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def refused(act: Awaitable[object]) -> str:
    try:
        return f"not refused: {await act}"
    except PerdureError as error:
        return error.code


async def use(
    ledger: Ledger, operation: Operation, call: Call[Any], spawned: SpawnedCall[int]
) -> None:
    for act in (
        ledger.operations(),
        ledger.create_operation(),
        operation.heartbeat(),
        operation.start_call(),
        operation.log("from the child"),
        operation.sync([spawned]),
        operation.wait_for_completion(lambda: asyncio.sleep(0)),
        operation.complete(),
        call.end(),
        spawned.wait(),
        spawned.cancel(),
    ):
        say("use", await refused(act))
    await ledger.dispose()


async def main(place: dict[str, Any]) -> None:
    early = Ledger(**place, participant_id="early")
    ended = asyncio.Event()

    async def work() -> int:
        await ended.wait()
        return 7

    async with Ledger(**place, participant_id="parent") as ledger:
        operation = await ledger.create_operation()
        call = await operation.start_call()
        spawned = operation.spawn_call(work)
        if (pid := os.fork()) == 0:
            # This process has a copy of the loop that the parent runs, and uses one of its own.
            asyncio._set_running_loop(None)
            asyncio.run(use(ledger, operation, call, spawned))
            os._exit(0)
        say("child", exit_code(pid))
        ended.set()
        await call.end()
        say("parent", await spawned)
        await operation.complete()
        say("parent", (await ledger.read_operation(operation.operation_id)).operation_state)
    if (pid := os.fork()) == 0:
        asyncio._set_running_loop(None)
        asyncio.run(begin(early))
        os._exit(0)
    say("child", exit_code(pid))


async def begin(ledger: Ledger) -> None:
    """A ledger that was made before the fork, and is used after it only."""
    async with ledger:
        operation = await ledger.create_operation()
        say("pid", operation.participant_pid == os.getpid())
        await operation.complete()


if __name__ == "__main__":
    asyncio.run(main({sys.argv[1]: sys.argv[2]}))
