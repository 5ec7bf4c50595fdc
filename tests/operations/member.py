"""A process that takes part in an operation: `python -m tests.operations.member PLACE OPERATION NAME [KIND]`.

It starts a call, prints so, and works until it reads a line from its input, or the operation fails. Then it
leaves; if its kind is `staying`, it does not. PLACE is JSON: the arguments of `Ledger`.
"""

import asyncio
import json
import sys
import time

from perdure.operations import CallCallback, Ledger, OperationFailed
from tests.operations.ledgers import QUICK


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(place: str, operation_id: str, name: str, kind: str = "required") -> None:
    async with Ledger(**json.loads(place), participant_id=name, settings=QUICK) as ledger:
        operation = await ledger.join_operation(operation_id)
        callback: CallCallback[None] = CallCallback(on_cleanup=lambda: say("cleaned up"))
        call = await operation.start_call(callback=callback, fail_on_crash=kind != "contained")
        say("started", call.call_id)
        if kind == "blocking":
            time.sleep(2 * QUICK.staleness)  # noqa: ASYNC251 - that is the point
            say("awake")
        lines = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        try:
            await operation.wait_for_completion(lambda: lines)
            await call.end()
            say("ended")
        except OperationFailed as failure:
            say(type(failure).__name__, failure)
            if kind == "staying":
                await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
