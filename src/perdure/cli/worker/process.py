"""One worker: a process that runs an engine until it is told to stop.

    python -m perdure.cli.worker.process ORDER LIFELINE

LIFELINE is the descriptor of a socket to the supervisor. The worker writes `Ready` to it when it serves; its end says
that the supervisor is gone, and the worker drains as if it had been told.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from functools import partial

import msgspec

from perdure import Engine, InputError, PerdureError
from perdure.cli.worker.supervision import UNUSABLE
from perdure.cli.worker.target import load_engine
from perdure.core.errors import ForeignSqlite, NotOurDatabase, SchemaTooNew

HOPELESS = (InputError, SchemaTooNew, NotOurDatabase, ForeignSqlite)
"""Errors that come again however often the worker is started."""

COLLECT_AFTER = 50_000, 2, 2
"""New objects until the garbage collector looks through the youngest, and how many such looks until it looks further.
Python's default, 700, 10 and 10, is for small programs: with hundreds of runs in memory the collector would take an
eighth of the time, and find nothing of ours. All objects are looked through about as often as by default, for what the
program itself leaves behind."""


class Order(msgspec.Struct, frozen=True):
    """What a worker runs. What is `None` is as the engine has it."""

    target: str
    queues: tuple[str, ...] | None = None
    concurrency: int | None = None

    def engine(self) -> Engine:
        engine = load_engine(self.target)
        settings = engine.settings
        if self.concurrency is not None:
            settings = msgspec.structs.replace(settings, concurrency=self.concurrency)
        return engine.replace(queues=self.queues, settings=settings)


class Ready(msgspec.Struct, frozen=True):
    """A worker's word to its supervisor."""

    grace_s: float


class Stopping:
    """Whether this process was told to stop: by a signal, or by the end of its supervisor."""

    def __init__(self, lifeline: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._lifeline = lifeline
        self._told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, partial(self._signalled, number))
        self._loop.add_reader(lifeline, self._let_go)

    async def wait(self) -> None:
        await self._told.wait()

    def _signalled(self, number: signal.Signals) -> None:
        if self._told.is_set():
            # What is durable stays; what runs is in doubt, as after any crash.
            os._exit(128 + number)
        self._told.set()

    def _let_go(self) -> None:
        self._loop.remove_reader(self._lifeline)
        self._told.set()


async def serve(engine: Engine, lifeline: socket.socket) -> None:
    """Run the engine until told to stop, then drain it."""
    stopping = asyncio.create_task(Stopping(lifeline).wait())
    opening = asyncio.create_task(engine.open())
    await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait([opening])
    if opening.cancelled():
        return
    opening.result()
    try:
        _tell(lifeline, Ready(engine.settings.grace))
        await stopping
    finally:
        await engine.close()


def _tell(lifeline: socket.socket, word: Ready) -> None:
    try:
        lifeline.sendall(msgspec.json.encode(word))
    except OSError:
        # The supervisor is gone; the reader has seen it, or will.
        return


def work(order: Order, lifeline: socket.socket) -> int:
    """Returns the exit code."""
    gc.set_threshold(*COLLECT_AFTER)  # before the program is imported, which may know better
    try:
        engine = order.engine()
    except InputError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return _fail(error)
    try:
        asyncio.run(serve(engine, lifeline))
    except PerdureError as error:
        return _fail(error)
    return 0


def _fail(error: PerdureError) -> int:
    print(f"perdure worker: {error}", file=sys.stderr, flush=True)
    return UNUSABLE if isinstance(error, HOPELESS) else 1


if __name__ == "__main__":
    socket_to_supervisor = socket.socket(fileno=int(sys.argv[2]))
    # Programs that tasks start must not keep it open.
    socket_to_supervisor.set_inheritable(False)
    sys.exit(work(msgspec.json.decode(sys.argv[1], type=Order), socket_to_supervisor))
