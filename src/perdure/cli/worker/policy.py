"""The decisions of a supervisor: pure, without processes or a clock.

Each method takes one event and returns the actions to carry out. Times are seconds of a monotonic clock.
"""

import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

BAD_CONFIG = 78
"""Exit code for a configuration that can't work, now or later; `EX_CONFIG` of sysexits."""

NOT_DRAINED = 1
"""Exit code of a supervisor that stopped while some worker did not drain."""

STOP_MARGIN_S = 15.0
"""Time that a stopping worker has beyond twice its grace before it is killed."""


@dataclass(frozen=True)
class RestartBackoff:
    """The delay before a failed worker restarts: doubles with each failure, up to a ceiling."""

    first_s: float = 0.5
    ceiling_s: float = 30.0
    steady_s: float = 30.0
    """A worker that served this long starts again with `first_s`."""

    def delay_s(self, failures: int) -> float:
        """The delay after that many consecutive failures."""
        doublings = min(failures - 1, 63)
        return min(self.ceiling_s, self.first_s * 2.0**doublings)


@dataclass(frozen=True)
class SpawnWorker:
    number: int


@dataclass(frozen=True)
class TerminateWorker:
    number: int


@dataclass(frozen=True)
class KillWorker:
    number: int


@dataclass(frozen=True)
class PrintLine:
    """A line of output; about one worker, or about all if `number` is `None`."""

    text: str
    number: int | None = None


Action = SpawnWorker | TerminateWorker | KillWorker | PrintLine


class Phase(Enum):
    ABSENT = "absent"
    STARTING = "starting"
    SERVING = "serving"
    BACKING_OFF = "backing off"
    """The worker failed and restarts at `due_s`."""


@dataclass
class _Worker:
    phase: Phase = Phase.ABSENT
    since_s: float = 0.0
    """When the worker began to serve."""
    grace_s: float = 0.0
    failures: int = 0
    is_leaving: bool = False
    """SIGTERM was sent. A second one would make the worker exit at once."""
    due_s: float | None = None
    """When to restart a worker that backs off, or to kill one that is leaving."""

    @property
    def is_alive(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.SERVING)


class SupervisionPolicy:
    """Decides about a fixed number of workers. The first starts alone; the others start once it serves."""

    def __init__(self, count: int, backoff: RestartBackoff | None = None) -> None:
        self._workers = {number: _Worker() for number in range(1, count + 1)}
        self._backoff = backoff or RestartBackoff()
        self._has_served = False
        self._is_stopping = False
        self._rolling: deque[int] = deque()
        """Workers that a rolling restart has still to replace; the first is being replaced."""
        self.exit_code = 0

    @property
    def is_over(self) -> bool:
        """Whether all workers have stopped for good."""
        return self._is_stopping and not any(w.is_alive for w in self._workers.values())

    @property
    def next_due_s(self) -> float | None:
        """When to call `due` next."""
        times = [w.due_s for w in self._workers.values() if w.due_s is not None]
        return min(times, default=None)

    def begin(self) -> list[Action]:
        return [self._spawn(1)]

    def ready(self, number: int, grace_s: float, now_s: float, what: str = "") -> list[Action]:
        """The worker serves; `what` describes its store, queues and programs."""
        worker = self._workers[number]
        worker.phase, worker.since_s, worker.grace_s = Phase.SERVING, now_s, grace_s
        if worker.is_leaving:
            worker.due_s = now_s + _stop_timeout_s(worker)
        actions: list[Action] = [PrintLine(f"ready: {what}" if what else "ready", number)]
        if not self._has_served:
            self._has_served = True
            if not self._is_stopping:
                absent = (n for n, w in self._workers.items() if w.phase is Phase.ABSENT)
                actions += [self._spawn(each) for each in absent]
        if self._rolling and self._rolling[0] == number and not worker.is_leaving:
            self._rolling.popleft()
            actions += self._continue_rolling(now_s)
        return actions

    def ended(self, number: int, code: int, now_s: float) -> list[Action]:
        """The worker's process ended; `code` as in `subprocess`, negative for a signal."""
        worker = self._workers[number]
        before, worker.phase, worker.due_s = worker.phase, Phase.ABSENT, None
        was_leaving, worker.is_leaving = worker.is_leaving, False
        if self._is_stopping:
            return self._drained(number, code, was_ready=before is Phase.SERVING)
        if was_leaving:
            return [PrintLine(f"{_how_ended(code)}, restarting", number), self._spawn(number)]
        if code == BAD_CONFIG and not self._is_any_serving():
            self.exit_code = BAD_CONFIG
            return [
                PrintLine("can't start: fix the error above, then run the command again", number),
                *self._stop(now_s),
            ]
        has_served = before is Phase.SERVING
        if has_served and now_s - worker.since_s >= self._backoff.steady_s:
            worker.failures = 0
        worker.failures += 1
        delay_s = self._backoff.delay_s(worker.failures)
        worker.phase, worker.due_s = Phase.BACKING_OFF, now_s + delay_s
        actions: list[Action] = [
            PrintLine(f"{_how_ended(code)}, restarting in {delay_s:g} s", number)
        ]
        if self._rolling and self._rolling[0] == number:
            self._rolling.clear()
            actions.append(PrintLine("rolling restart cancelled: the other workers keep running"))
        return actions

    def _drained(self, number: int, code: int, *, was_ready: bool) -> list[Action]:
        # SIGTERM kills a worker that does not serve yet; it holds no runs.
        is_good = code == 0 or (code == -signal.SIGTERM and not was_ready)
        if not is_good and not self.exit_code:
            self.exit_code = NOT_DRAINED
        return [PrintLine("stopped" if is_good else _how_ended(code), number)]

    def stop(
        self, reason: str, now_s: float, again: str = "signal again", killed_code: int = NOT_DRAINED
    ) -> list[Action]:
        """Drains all workers. A second call kills them and sets the exit code to `killed_code`."""
        if not self._is_stopping:
            line = PrintLine(
                f"{reason}: stopping, waiting for running tasks; {again} to stop at once"
            )
            return [line, *self._stop(now_s)]
        alive = [number for number, worker in self._workers.items() if worker.is_alive]
        self.exit_code = killed_code
        return [
            PrintLine(f"{reason} again: killing the remaining workers"),
            *map(KillWorker, alive),
        ]

    def _stop(self, now_s: float) -> list[Action]:
        self._is_stopping = True
        self._rolling.clear()
        actions: list[Action] = []
        for number, worker in self._workers.items():
            if worker.phase is Phase.BACKING_OFF:
                worker.phase, worker.due_s = Phase.ABSENT, None
            elif worker.is_alive and not worker.is_leaving:
                actions.append(self._terminate(number, now_s))
        return actions

    def roll(self, reason: str, now_s: float) -> list[Action]:
        """Starts a rolling restart: replaces the workers one by one while the others serve."""
        if self._is_stopping or self._rolling:
            return []
        self._rolling.extend(number for number, worker in self._workers.items() if worker.is_alive)
        return [PrintLine(f"{reason}: rolling restart"), *self._continue_rolling(now_s)]

    def _continue_rolling(self, now_s: float) -> Iterator[Action]:
        while self._rolling:
            number = self._rolling[0]
            if self._workers[number].is_alive:
                yield self._terminate(number, now_s)
                return
            self._rolling.popleft()
        yield PrintLine("rolling restart finished")

    def due(self, now_s: float) -> list[Action]:
        """The restarts and kills that are due."""
        actions: list[Action] = []
        for number, worker in self._workers.items():
            if worker.due_s is None or worker.due_s > now_s:
                continue
            worker.due_s = None
            if worker.phase is Phase.BACKING_OFF:
                actions.append(self._spawn(number))
            else:
                actions += [
                    PrintLine("did not stop in time, killing it", number),
                    KillWorker(number),
                ]
        return actions

    def _is_any_serving(self) -> bool:
        return any(worker.phase is Phase.SERVING for worker in self._workers.values())

    def _spawn(self, number: int) -> SpawnWorker:
        worker = self._workers[number]
        worker.phase, worker.due_s = Phase.STARTING, None
        return SpawnWorker(number)

    def _terminate(self, number: int, now_s: float) -> TerminateWorker:
        worker = self._workers[number]
        worker.is_leaving = True
        worker.due_s = now_s + _stop_timeout_s(worker)
        return TerminateWorker(number)


def _stop_timeout_s(worker: _Worker) -> float:
    """Twice the grace, because the engine waits that long for the store and again for running tasks."""
    return 2 * worker.grace_s + STOP_MARGIN_S


def _how_ended(code: int) -> str:
    """Describes how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
