"""Rounds: the turns that runs are to take now, taken together, phase by phase.

First every program goes on, then every journal grows. So the same code runs for many runs in a row, and
stays in the processor's caches: with hundreds of runs that took a fifth off the work of a step.
"""

import asyncio
from collections.abc import Callable

from perdure.host.batch import Batch
from perdure.host.staging import Staging
from perdure.store.committer import Decided

Begin = Callable[[], Batch]
"""Feeds a run, and gives what is to be written of it. No two of a round may be of the same run."""

Submit = Callable[[Batch, Decided], None]
"""Hands a batch to the store, or settles one that is empty."""


class _Turn:
    __slots__ = ("batch", "begin", "told")

    batch: Batch

    def __init__(self, begin: Begin, told: Decided) -> None:
        self.begin = begin
        self.told = told


class Rounds:
    """Collects turns. A round is taken in the next turn of the event loop."""

    def __init__(self, staging: Staging, submit: Submit) -> None:
        self._loop = asyncio.get_running_loop()
        self._staging = staging
        self._submit = submit
        self._turns: list[_Turn] = []

    def __bool__(self) -> bool:
        """Whether a round is to be taken."""
        return bool(self._turns)

    def add(self, begin: Begin, told: Decided) -> None:
        """Let a run take its turn; `told` hears when that is durable, or why it is not."""
        if not self._turns:
            # Not at once: whatever else happens in this turn of the loop comes along.
            self._loop.call_soon(self._take)
        self._turns.append(_Turn(begin, told))

    def close(self) -> None:
        """Take none of the turns."""
        self._turns.clear()

    def _take(self) -> None:
        turns, self._turns = self._turns, []
        interrupts: list[BaseException] = []
        for phase in (self._begin, self._reserve, self._write, self._hand_over):
            passed = []
            for turn in turns:
                try:
                    phase(turn)
                except BaseException as error:  # the others must not suffer from it
                    turn.told(error)
                    if not isinstance(error, Exception):
                        interrupts.append(error)
                else:
                    passed.append(turn)
            turns = passed
        if interrupts:
            raise interrupts[0]

    def _begin(self, turn: _Turn) -> None:
        turn.batch = turn.begin()

    def _reserve(self, turn: _Turn) -> None:
        self._staging.reserve(turn.batch)

    def _write(self, turn: _Turn) -> None:
        self._staging.write(turn.batch)

    def _hand_over(self, turn: _Turn) -> None:
        self._submit(turn.batch, turn.told)
