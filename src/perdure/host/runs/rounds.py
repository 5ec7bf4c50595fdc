"""Takes the turns of many runs together, phase by phase.

First every program advances, then every journal grows: the same code runs for many runs in a row and stays in the
processor's caches, which saved a fifth of the work of a step with hundreds of runs. A round is limited, so that the
store writes the batches of one while the next is taken.
"""

import asyncio
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Protocol, TypeVar

from perdure.host.runs.batch import Batch
from perdure.host.runs.staging import Staging
from perdure.store.commit.committer import CollectorPause, OnDecided

T = TypeVar("T")

LARGEST = 64
"""Most turns in one round: many make good use of the caches, but the store should not wait for all of them."""


class Turn(Protocol):
    """A turn of a run, from its beginning to its commit. No two turns of a round may be of the same run."""

    def begin(self) -> Batch:
        """The first phase: feeds the run."""

    def __call__(self, outcome: BaseException | None) -> None:
        """The turn is durable, or failed."""


_begin: Callable[[Turn], Batch] = methodcaller("begin")

Submit = Callable[[Batch, OnDecided], None]
"""Hands a batch to the store, or settles an empty one."""


class Rounds:
    """Collects turns, and takes them in the next iteration of the event loop."""

    def __init__(self, staging: Staging, submit: Submit) -> None:
        self._loop = asyncio.get_running_loop()
        self._staging = staging
        self._submit = submit
        self._turns: list[Turn] = []
        self._interrupt: BaseException | None = None
        """An exception such as `KeyboardInterrupt`, raised when the round has ended."""

    def __bool__(self) -> bool:
        """Whether turns wait for a round."""
        return bool(self._turns)

    def add(self, turn: Turn) -> None:
        """Add a turn. It is called with `None` when it is durable, or with the error."""
        if not self._turns:
            # Not at once: turns added in the same iteration of the loop share the round.
            self._loop.call_soon(self._take)
        self._turns.append(turn)

    def close(self) -> None:
        """Discard the turns that wait."""
        self._turns.clear()

    def _take(self) -> None:
        with CollectorPause():
            self._take_round()

    def _take_round(self) -> None:
        turns, self._turns = self._turns[:LARGEST], self._turns[LARGEST:]
        has_more = bool(self._turns)
        staging, self._interrupt = self._staging, None
        begun = self._pass(_begin, zip(turns, turns, strict=True))
        reserved = self._pass(staging.reserve, begun)
        for batch, on_decided in self._pass(staging.write, reserved):
            try:
                self._submit(batch, on_decided)
            except BaseException as error:
                self._fail(on_decided, error)
        if has_more:
            # A later iteration of the loop: the store gets this round's batches first.
            self._loop.call_soon(self._take)
        if self._interrupt is not None:
            raise self._interrupt

    def _pass(
        self, phase: Callable[[T], Batch], turns: Iterable[tuple[T, OnDecided]]
    ) -> list[tuple[Batch, OnDecided]]:
        """Take all turns through a phase, and return those that passed. One that fails does not affect the others."""
        passed = []
        for turn, on_decided in turns:
            try:
                passed.append((phase(turn), on_decided))
            except BaseException as error:
                self._fail(on_decided, error)
        return passed

    def _fail(self, on_decided: OnDecided, error: BaseException) -> None:
        on_decided(error)
        if not isinstance(error, Exception):
            self._interrupt = error
