"""`perdure worker`: the command."""

import asyncio
import sys

from perdure import InputError, Settings
from perdure.authoring.definition import require_name
from perdure.cli.worker.process import Order
from perdure.cli.worker.supervision import UNUSABLE, Supervision
from perdure.cli.worker.supervisor import Supervisor


def worker(
    target: str,
    /,
    *,
    processes: int = 1,
    queues: str | None = None,
    concurrency: int | None = None,
) -> int:
    """Run an engine in one or more processes, and keep them running.

    SIGTERM or Ctrl-C lets running tasks end and hands everything else back; once more kills. SIGHUP replaces the
    processes one by one.

    Parameters
    ----------
    target
        module:name of a perdure.Engine that is not open, or of a function that returns one.
    processes
        How many processes run an engine each.
    queues
        The queues to serve, with commas between them. Without it those of the engine.
    concurrency
        Async tasks that run at the same time, in each process. Without it that of the engine.
    """
    try:
        order = _order(target, processes, queues, concurrency)
    except InputError as error:
        print(f"perdure worker: {error}", file=sys.stderr)
        return UNUSABLE
    return asyncio.run(_supervise(order, processes))


def _order(target: str, processes: int, queues: str | None, concurrency: int | None) -> Order:
    """What was asked for, checked as far as that needs no code of the user's."""
    if processes < 1:
        raise InputError(f"--processes is {processes}", "pass at least 1")
    if concurrency is not None:
        Settings(concurrency=concurrency)
    names = None
    if queues is not None:
        given = queues.split(",") if queues else []
        names = tuple(require_name("queue", name.strip()) for name in given)
    return Order(target, names, concurrency)


async def _supervise(order: Order, processes: int) -> int:
    return await Supervisor(order, Supervision(processes)).run()
