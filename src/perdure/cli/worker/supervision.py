"""What a supervisor does when something happens to its workers: decisions only, no process and no clock.

Each method takes in one event and returns what is to be done about it. Times are seconds of any clock that does not
go back.
"""

import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

UNUSABLE = 78
"""Exit code of what can't work as it was told to, now or later; `EX_CONFIG` of sysexits."""

NOT_DRAINED = 1
"""Exit code of a supervisor that stopped, but not all of its workers in good order."""

HURRY_S = 15.0
"""How long a worker that stops may take beyond twice its grace, before it is killed."""


@dataclass(frozen=True)
class Backoff:
    """How long a worker that failed is left alone: twice as long each time, up to a ceiling."""

    first_s: float = 0.5
    ceiling_s: float = 30.0
    steady_s: float = 30.0
    """Who served that long begins anew: its failures are forgotten."""

    def delay_s(self, failures: int) -> float:
        """The wait after that many failures in a row."""
        doublings = min(failures - 1, 63)
        return min(self.ceiling_s, self.first_s * 2.0**doublings)


@dataclass(frozen=True)
class Spawn:
    number: int


@dataclass(frozen=True)
class Terminate:
    number: int


@dataclass(frozen=True)
class Kill:
    number: int


@dataclass(frozen=True)
class Say:
    """A line for people; about one worker, or about all if there is no number."""

    text: str
    number: int | None = None


Action = Spawn | Terminate | Kill | Say


class Phase(Enum):
    ABSENT = "absent"
    STARTING = "starting"
    SERVING = "serving"
    RESTING = "resting"
    """It failed, and is started again when its time has come."""


@dataclass
class _Worker:
    phase: Phase = Phase.ABSENT
    since_s: float = 0.0
    """When it began to serve."""
    grace_s: float = 0.0
    failures: int = 0
    is_leaving: bool = False
    """It was told to stop. A second word would make it stop at once."""
    due_s: float | None = None
    """When it is started, if it rests; when it is killed, if it is leaving."""

    @property
    def is_alive(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.SERVING)


class Supervision:
    """A number of workers. The first one goes ahead: the others follow when it has proved that the code loads."""

    def __init__(self, count: int, backoff: Backoff | None = None) -> None:
        self._workers = {number: _Worker() for number in range(1, count + 1)}
        self._backoff = backoff or Backoff()
        self._is_proven = False
        self._is_stopping = False
        self._rolling: deque[int] = deque()
        """Who has to be replaced yet; the first of them is being replaced."""
        self.exit_code = 0

    @property
    def is_over(self) -> bool:
        """Nothing runs any more, and nothing will."""
        return self._is_stopping and not any(w.is_alive for w in self._workers.values())

    @property
    def next_due_s(self) -> float | None:
        """When `due` wants to be asked next."""
        times = [w.due_s for w in self._workers.values() if w.due_s is not None]
        return min(times, default=None)

    def begin(self) -> list[Action]:
        return [self._spawn(1)]

    def ready(self, number: int, grace_s: float, now_s: float) -> list[Action]:
        """The worker serves now; it stops within about that grace."""
        worker = self._workers[number]
        worker.phase, worker.since_s, worker.grace_s = Phase.SERVING, now_s, grace_s
        if worker.is_leaving:
            worker.due_s = now_s + _patience_s(worker)
        actions: list[Action] = [Say("ready", number)]
        if not self._is_proven:
            self._is_proven = True
            if not self._is_stopping:
                absent = (n for n, w in self._workers.items() if w.phase is Phase.ABSENT)
                actions += [self._spawn(each) for each in absent]
        if self._rolling and self._rolling[0] == number and not worker.is_leaving:
            self._rolling.popleft()
            actions += self._roll_on(now_s)
        return actions

    def ended(self, number: int, code: int, now_s: float) -> list[Action]:
        """The worker's process is gone, with an exit code as `subprocess` has it."""
        worker = self._workers[number]
        before, worker.phase, worker.due_s = worker.phase, Phase.ABSENT, None
        was_told, worker.is_leaving = worker.is_leaving, False
        if self._is_stopping:
            return self._drained(number, code, was_ready=before is Phase.SERVING)
        if was_told:
            return [Say(f"{_manner(code)}, is replaced", number), self._spawn(number)]
        if code == UNUSABLE and not self._is_anyone_serving():
            self.exit_code = UNUSABLE
            return [
                Say("can't start; see above, and start again when that is mended", number),
                *self._stop(now_s),
            ]
        has_served = before is Phase.SERVING
        if has_served and now_s - worker.since_s >= self._backoff.steady_s:
            worker.failures = 0
        worker.failures += 1
        delay_s = self._backoff.delay_s(worker.failures)
        worker.phase, worker.due_s = Phase.RESTING, now_s + delay_s
        actions: list[Action] = [Say(f"{_manner(code)}, starts again in {delay_s:g} s", number)]
        if self._rolling and self._rolling[0] == number:
            self._rolling.clear()
            actions.append(Say("the rolling restart is broken off: the others go on as they are"))
        return actions

    def _drained(self, number: int, code: int, *, was_ready: bool) -> list[Action]:
        # Whoever had not begun to serve is ended by the signal itself, and leaves nothing behind.
        is_good = code == 0 or (code == -signal.SIGTERM and not was_ready)
        if not is_good and not self.exit_code:
            self.exit_code = NOT_DRAINED
        return [Say("stopped" if is_good else _manner(code), number)]

    def stop(self, reason: str, now_s: float) -> list[Action]:
        """Let all workers drain. Asked once more: kill them."""
        if not self._is_stopping:
            return [Say(f"{reason}: stopping; once more kills"), *self._stop(now_s)]
        alive = [number for number, worker in self._workers.items() if worker.is_alive]
        return [Say(f"{reason} again: killing what still runs"), *map(Kill, alive)]

    def _stop(self, now_s: float) -> list[Action]:
        self._is_stopping = True
        self._rolling.clear()
        actions: list[Action] = []
        for number, worker in self._workers.items():
            if worker.phase is Phase.RESTING:
                worker.phase, worker.due_s = Phase.ABSENT, None
            elif worker.is_alive and not worker.is_leaving:
                actions.append(self._terminate(number, now_s))
        return actions

    def roll(self, reason: str, now_s: float) -> list[Action]:
        """Replace the workers one by one, so that the others serve meanwhile."""
        if self._is_stopping or self._rolling:
            return []
        self._rolling.extend(number for number, worker in self._workers.items() if worker.is_alive)
        return [Say(f"{reason}: rolling restart"), *self._roll_on(now_s)]

    def _roll_on(self, now_s: float) -> Iterator[Action]:
        while self._rolling:
            number = self._rolling[0]
            if self._workers[number].is_alive:
                yield self._terminate(number, now_s)
                return
            self._rolling.popleft()
        yield Say("the rolling restart is through")

    def due(self, now_s: float) -> list[Action]:
        """What is to be done because its time has come."""
        actions: list[Action] = []
        for number, worker in self._workers.items():
            if worker.due_s is None or worker.due_s > now_s:
                continue
            worker.due_s = None
            if worker.phase is Phase.RESTING:
                actions.append(self._spawn(number))
            else:
                actions += [Say("does not stop in time: killed", number), Kill(number)]
        return actions

    def _is_anyone_serving(self) -> bool:
        return any(worker.phase is Phase.SERVING for worker in self._workers.values())

    def _spawn(self, number: int) -> Spawn:
        worker = self._workers[number]
        worker.phase, worker.due_s = Phase.STARTING, None
        return Spawn(number)

    def _terminate(self, number: int, now_s: float) -> Terminate:
        worker = self._workers[number]
        worker.is_leaving = True
        worker.due_s = now_s + _patience_s(worker)
        return Terminate(number)


def _patience_s(worker: _Worker) -> float:
    """The engine waits its grace for what it asks of the store, and again for the tasks that run."""
    return 2 * worker.grace_s + HURRY_S


def _manner(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
