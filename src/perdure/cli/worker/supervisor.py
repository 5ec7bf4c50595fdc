"""The supervisor process: spawns workers, reaps them and forwards signals.

`SupervisionPolicy` decides; this module carries out its actions.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from perdure.cli.worker import process as worker_process
from perdure.cli.worker.logs import DEFAULT_FORMAT, supervisor_line
from perdure.cli.worker.policy import (
    Action,
    KillWorker,
    PrintLine,
    SpawnWorker,
    SupervisionPolicy,
    TerminateWorker,
)
from perdure.cli.worker.process import ReadyMessage, WorkerConfig

_CHUNK = 65_536

_MAX_NAMED = 20
"""Maximum number of programs that the ready line names."""


class Supervisor:
    """Supervises workers from the main thread's event loop."""

    def __init__(self, config: WorkerConfig, policy: SupervisionPolicy) -> None:
        self._config = msgspec.json.encode(config).decode()
        self._log_format = config.log_format or DEFAULT_FORMAT
        self._partial_lines: dict[int, bytes] = {}
        """Incomplete lines received from workers."""
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Runs until all workers have stopped and returns the exit code."""
        with self._listening():
            self._carry_out(self._policy.begin())
            await self._over.wait()
        return self._policy.exit_code

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Handles signals. Kills all remaining workers at the end of the block."""
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGCHLD: self._reap,
            signal.SIGTERM: partial(self._stop, "SIGTERM"),
            signal.SIGINT: partial(self._stop, "SIGINT"),
            # From a terminal, SIGHUP means that the terminal was closed.
            signal.SIGHUP: partial(self._stop if sys.stderr.isatty() else self._roll, "SIGHUP"),
        }
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                self._loop.remove_signal_handler(number)
            for worker in self._processes.values():
                worker.kill()
                worker.wait()
            for worker_socket in self._sockets.values():
                self._loop.remove_reader(worker_socket)
                worker_socket.close()

    def _stop(self, name: str) -> None:
        number = signal.Signals[name]
        again = "press Ctrl-C again" if number is signal.SIGINT else f"send {name} again"
        self._carry_out(self._policy.stop(name, self._loop.time(), again, 128 + number))

    def _roll(self, name: str) -> None:
        self._carry_out(self._policy.roll(name, self._loop.time()))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case SpawnWorker(number):
                    self._spawn(number)
                case TerminateWorker(number):
                    self._processes[number].terminate()
                case KillWorker(number):
                    self._processes[number].kill()
                case PrintLine(text, number):
                    self._print(text, number)
        self._set_timer()
        if self._policy.is_over:
            self._over.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._policy.next_due_s
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._run_due)

    def _run_due(self) -> None:
        self._carry_out(self._policy.due(self._loop.time()))

    def _spawn(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._processes[number] = _start_process(self._config, theirs.fileno())
            except OSError as error:
                ours.close()
                self._print(f"could not start a process: {error}", number)
                self._carry_out(self._policy.ended(number, 1, self._loop.time()))
                return
        self._sockets[number] = ours
        self._partial_lines.pop(number, None)
        self._loop.add_reader(ours, self._receive, number, ours)
        self._print("started", number)

    def _receive(self, number: int, worker_socket: socket.socket) -> None:
        try:
            received = worker_socket.recv(_CHUNK)
        except OSError:
            received = b""
        if not received:
            # The worker is ending: SIGCHLD follows.
            self._loop.remove_reader(worker_socket)
            return
        line, ending, _ = (self._partial_lines.pop(number, b"") + received).partition(b"\n")
        if not ending:
            self._partial_lines[number] = line
            return
        ready = msgspec.json.decode(line, type=ReadyMessage)
        now_s, what = self._loop.time(), _described(ready)
        self._carry_out(self._policy.ready(number, ready.grace_s, now_s, what))

    def _reap(self) -> None:
        """Handles all ended workers: one SIGCHLD may stand for several."""
        ended = [n for n in self._sockets if self._processes[n].poll() is not None]
        for number in ended:
            worker_socket = self._sockets.pop(number)
            self._loop.remove_reader(worker_socket)
            worker_socket.close()
            code = self._processes[number].returncode
            self._carry_out(self._policy.ended(number, code, self._loop.time()))

    def _print(self, text: str, number: int | None) -> None:
        process = None if number is None else self._processes.get(number)
        pid = None if process is None else process.pid
        print(supervisor_line(text, number, pid, self._log_format), file=sys.stderr, flush=True)


def _described(ready: ReadyMessage) -> str:
    """Describes what a worker serves."""
    names = ready.programs
    programs = ", ".join(names[:_MAX_NAMED]) or "none"
    if len(names) > _MAX_NAMED:
        programs += f" and {len(names) - _MAX_NAMED} more"
    queues = ", ".join(ready.queues) or "none"
    return f"store {ready.store}; queues: {queues}; programs: {programs}"


def _start_process(config: str, worker_socket: int) -> subprocess.Popen[bytes]:
    """Starts a worker in its own process group: Ctrl-C reaches only the supervisor, which forwards it."""
    return subprocess.Popen(  # noqa: S603 - our own program, in our own interpreter
        [sys.executable, "-m", worker_process.__name__, config, str(worker_socket)],
        stdin=subprocess.DEVNULL,
        pass_fds=[worker_socket],
        process_group=0,
    )
