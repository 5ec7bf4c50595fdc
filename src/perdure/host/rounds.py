"""Rounds: the turns that runs are to take now, taken together, phase by phase.

First every program goes on, then every journal grows. So the same code runs for many runs in a row, and
stays in the processor's caches: with hundreds of runs that took a fifth off the work of a step. What some tens of
runs have written is on its way to the disk while the next ones take their turns.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import call
from typing import TypeVar

from perdure.host.batch import Batch
from perdure.host.staging import Staging
from perdure.store.committer import Decided

T = TypeVar("T")

LARGEST = 64
"""Turns of one round: the caches want many, and the disk does not want to wait for all."""

Begin = Callable[[], Batch]
"""Feeds a run, and gives what is to be written of it. No two of a round may be of the same run."""

Submit = Callable[[Batch, Decided], None]
"""Hands a batch to the store, or settles one that is empty."""


class Rounds:
    """Collects turns. A round is taken in the next turn of the event loop."""

    def __init__(self, staging: Staging, submit: Submit) -> None:
        self._loop = asyncio.get_running_loop()
        self._staging = staging
        self._submit = submit
        self._turns: list[tuple[Begin, Decided]] = []
        self._interrupt: BaseException | None = None
        """What is no failure of a run, and came while a round was taken."""

    def __bool__(self) -> bool:
        """Whether a round is to be taken."""
        return bool(self._turns)

    def add(self, begin: Begin, told: Decided) -> None:
        """Let a run take its turn; `told` hears when that is durable, or why it is not."""
        if not self._turns:
            # Not at once: whatever else happens in this turn of the loop comes along.
            self._loop.call_soon(self._take)
        self._turns.append((begin, told))

    def close(self) -> None:
        """Take none of the turns."""
        self._turns.clear()

    def _take(self) -> None:
        turns, self._turns = self._turns[:LARGEST], self._turns[LARGEST:]
        has_more = bool(self._turns)
        staging, self._interrupt = self._staging, None
        begun = self._pass(call, turns)
        reserved = self._pass(staging.reserve, begun)
        for batch, told in self._pass(staging.write, reserved):
            try:
                self._submit(batch, told)
            except BaseException as error:
                self._fail(told, error)
        if has_more:
            # After the store, which has heard of this round's batches.
            self._loop.call_soon(self._take)
        if self._interrupt is not None:
            raise self._interrupt

    def _pass(
        self, phase: Callable[[T], Batch], turns: Sequence[tuple[T, Decided]]
    ) -> list[tuple[Batch, Decided]]:
        """The turns that come through a phase. One that does not is over, and the others do not suffer from it."""
        passed = []
        for turn, told in turns:
            try:
                passed.append((phase(turn), told))
            except BaseException as error:
                self._fail(told, error)
        return passed

    def _fail(self, told: Decided, error: BaseException) -> None:
        told(error)
        if not isinstance(error, Exception):
            self._interrupt = error
