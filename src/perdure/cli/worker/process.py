"""One worker process: runs an engine until it is asked to stop.

    python -m perdure.cli.worker.process CONFIG SOCKET

CONFIG is a `WorkerConfig` as JSON. SOCKET is the file descriptor of a socket to the supervisor: the worker sends one
line with a `ReadyMessage` once it serves. When the supervisor dies, the socket closes, and the worker drains as after
SIGTERM.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
from functools import partial

import msgspec

from perdure import Engine, InputError, PerdureError
from perdure.cli.user_code import load_engine
from perdure.cli.worker.logs import configure_logging, print_error
from perdure.cli.worker.policy import BAD_CONFIG
from perdure.client.engine_summary import engine_summary
from perdure.client.queues import unknown_queues
from perdure.core.errors import ForeignSqlite, NotOurDatabase, SchemaTooNew

PERMANENT_ERRORS = (InputError, SchemaTooNew, NotOurDatabase, ForeignSqlite)
"""Errors that a restart can't fix."""

GC_THRESHOLDS = 50_000, 2, 2
"""Thresholds of the garbage collector's three generations. With Python's default (700, 10, 10) and hundreds of runs in
memory, the collector takes an eighth of the time, and the engine leaves no cycles for it. Full collections stay
about as frequent as by default, for the cycles of user code."""


class WorkerConfig(msgspec.Struct, frozen=True):
    """The options of a worker. `None` means: as configured in the engine."""

    target: str
    queues: tuple[str, ...] | None = None
    concurrency: int | None = None
    log_level: str | None = None
    log_format: str | None = None

    def engine(self) -> Engine:
        engine = load_engine(self.target, "start the worker")
        if not engine.hosts:
            what = f"{self.target} is an engine with hosts=False, which executes no runs"
            raise InputError(what, "pass an engine without hosts=False")
        settings = engine.settings
        if self.concurrency is not None:
            settings = msgspec.structs.replace(settings, concurrency=self.concurrency)
        engine = engine.replace(queues=self.queues, settings=settings)
        for queue, remedy in unknown_queues(engine.queues).items():
            # The module is imported, so all tasks are known: no work for this queue could run here.
            raise InputError(f"no task that {self.target} imports uses queue {queue!r}", remedy)
        return engine


class ReadyMessage(msgspec.Struct, frozen=True):
    """Sent by a worker to its supervisor once it serves."""

    grace_s: float
    store: str = ""
    """The store URL without its password."""
    queues: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


class StopRequest:
    """Waits for a request to stop: SIGTERM, SIGINT, or the death of the supervisor."""

    def __init__(self, supervisor: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        self._requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, partial(self._signalled, number))
        self._loop.add_reader(supervisor, self._supervisor_died)

    async def wait(self) -> None:
        await self._requested.wait()

    def _signalled(self, number: signal.Signals) -> None:
        if self._requested.is_set():
            # Committed state is durable; running tasks are in doubt, as after a crash.
            os._exit(128 + number)
        self._requested.set()

    def _supervisor_died(self) -> None:
        self._loop.remove_reader(self._supervisor)
        self._requested.set()


async def serve_queues(engine: Engine, supervisor: socket.socket) -> None:
    """Runs the engine until a request to stop, then drains it."""
    stopping = asyncio.create_task(StopRequest(supervisor).wait())
    opening = asyncio.create_task(engine.open())
    await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait([opening])
    if opening.cancelled():
        return
    opening.result()
    failing = asyncio.create_task(engine.wait_failed())
    try:
        _send(supervisor, ReadyMessage(engine.settings.grace, *engine_summary(engine)))
        await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
    finally:
        failing.cancel()
        await engine.close()


def _send(supervisor: socket.socket, message: ReadyMessage) -> None:
    try:
        supervisor.sendall(msgspec.json.encode(message) + b"\n")
    except OSError:
        # The supervisor is dead; `StopRequest` notices it too.
        return


def run_worker(config: WorkerConfig, supervisor: socket.socket) -> int:
    """Runs a worker to its end and returns the exit code."""
    gc.set_threshold(*GC_THRESHOLDS)  # before the import of user code, which may set its own
    try:
        engine = config.engine()
    except InputError as error:
        return _fail(error, error.__cause__, config)
    configure_logging(config.log_level, config.log_format)
    try:
        asyncio.run(serve_queues(engine, supervisor))
    except PerdureError as error:
        return _fail(error, None, config)
    return 0


def _fail(error: PerdureError, cause: BaseException | None, config: WorkerConfig) -> int:
    print_error(error, cause, config.log_format)
    return BAD_CONFIG if isinstance(error, PERMANENT_ERRORS) else 1


if __name__ == "__main__":
    supervisor_socket = socket.socket(fileno=int(sys.argv[2]))
    # Subprocesses of tasks must not keep the socket open.
    supervisor_socket.set_inheritable(False)
    sys.exit(run_worker(msgspec.json.decode(sys.argv[1], type=WorkerConfig), supervisor_socket))
