"""The process that keeps workers running: it spawns them, hears of their ends, and passes signals on.

What is done is decided by `Supervision`; here it is only carried out.
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
from perdure.cli.worker.process import Order, Ready
from perdure.cli.worker.supervision import Action, Kill, Say, Spawn, Supervision, Terminate

_LONGEST_WORD = 256


class Supervisor:
    """Belongs to the main thread's event loop."""

    def __init__(self, order: Order, supervision: Supervision) -> None:
        self._order = msgspec.json.encode(order).decode()
        self._supervision = supervision
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lifelines: dict[int, socket.socket] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()

    async def run(self) -> int:
        """Returns the exit code, when no worker runs any more."""
        with self._listening():
            self._carry_out(self._supervision.begin())
            await self._over.wait()
        return self._supervision.exit_code

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """No worker outlives the block, whatever happens in it."""
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGCHLD: self._reap,
            signal.SIGTERM: partial(self._stop, "SIGTERM"),
            signal.SIGINT: partial(self._stop, "SIGINT"),
            # The end of a terminal is the end of what was started in it.
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
            for lifeline in self._lifelines.values():
                self._loop.remove_reader(lifeline)
                lifeline.close()

    def _stop(self, name: str) -> None:
        self._carry_out(self._supervision.stop(name, self._loop.time()))

    def _roll(self, name: str) -> None:
        self._carry_out(self._supervision.roll(name, self._loop.time()))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Spawn(number):
                    self._spawn(number)
                case Terminate(number):
                    self._processes[number].terminate()
                case Kill(number):
                    self._processes[number].kill()
                case Say(text, number):
                    self._say(text, number)
        self._set_timer()
        if self._supervision.is_over:
            self._over.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._supervision.next_due_s
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._carry_out(self._supervision.due(self._loop.time()))

    def _spawn(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._processes[number] = _process(self._order, theirs.fileno())
            except OSError as error:
                ours.close()
                self._say(f"no process: {error}", number)
                self._carry_out(self._supervision.ended(number, 1, self._loop.time()))
                return
        self._lifelines[number] = ours
        self._loop.add_reader(ours, self._hear, number, ours)
        self._say("started", number)

    def _hear(self, number: int, lifeline: socket.socket) -> None:
        try:
            word = lifeline.recv(_LONGEST_WORD)
        except OSError:
            word = b""
        if not word:
            # It will end, or has: SIGCHLD tells.
            self._loop.remove_reader(lifeline)
            return
        ready = msgspec.json.decode(word, type=Ready)
        self._carry_out(self._supervision.ready(number, ready.grace_s, self._loop.time()))

    def _reap(self) -> None:
        """One SIGCHLD may tell of several."""
        ended = [n for n in self._lifelines if self._processes[n].poll() is not None]
        for number in ended:
            lifeline = self._lifelines.pop(number)
            self._loop.remove_reader(lifeline)
            lifeline.close()
            code = self._processes[number].returncode
            self._carry_out(self._supervision.ended(number, code, self._loop.time()))

    def _say(self, text: str, number: int | None) -> None:
        process = None if number is None else self._processes.get(number)
        who = "" if number is None else f" {number}"
        who += "" if process is None else f" (pid {process.pid})"
        print(f"perdure worker{who}: {text}", file=sys.stderr, flush=True)


def _process(order: str, lifeline: int) -> subprocess.Popen[bytes]:
    """A worker in a group of its own: Ctrl-C is for this process, which passes it on."""
    return subprocess.Popen(  # noqa: S603 - our own program, in our own interpreter
        [sys.executable, "-m", worker_process.__name__, order, str(lifeline)],
        stdin=subprocess.DEVNULL,
        pass_fds=[lifeline],
        process_group=0,
    )
