"""Deliberate bugs around front ends, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.core.ids import HostId, RunId
from perdure.engine.runs import messages as run_messages
from perdure.host.cluster.takeover_loop import TakeoverLoop
from perdure.host.runs.batch import RunStart
from perdure.host.runs.parking import Parking
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import NewRun, Run


@contextmanager
def owned_by_its_front_end() -> Iterator[None]:
    """A front end owns the run that it starts, and advances nothing."""
    row = RunStart.row

    def owned(
        self: RunStart, run_id: RunId, now_ms: int, owner: HostId | None, *enrolments: Any
    ) -> NewRun:
        return row(self, run_id, now_ms, owner or HostId("front-end"), *enrolments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunStart, "row", owned)
        yield


@contextmanager
def asked_for_and_left_alone() -> Iterator[None]:
    """A host that takes a run over for a caller does not advance it."""

    async def take(self: TakeoverLoop, run: Run) -> None:
        context = self._context
        await context.store.take_run(run.run_id, run.owner, context.host_id)
        self._single.pop(run.run_id, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TakeoverLoop, "_take_single", take)
        yield


@contextmanager
def taken_from_the_dead_and_left_alone() -> Iterator[None]:
    """A host that takes a dead host's run over for a caller does not advance it."""
    take_single = TakeoverLoop._take_single

    async def take(self: TakeoverLoop, run: Run) -> None:
        if run.owner is None:
            await take_single(self, run)
            return
        context = self._context
        await context.store.take_run(run.run_id, run.owner, context.host_id)
        self._single.pop(run.run_id, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TakeoverLoop, "_take_single", take)
        yield


@contextmanager
def parked_for_ever() -> Iterator[None]:
    """A run that a host without its program parked stays parked on the host that has it."""
    park = Parking.park

    async def never_back(
        self: Parking, run: Run, reason: str | None, bundle: Bundle | None = None
    ) -> None:
        if reason is not None:
            await park(self, run, reason, bundle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parking, "park", never_back)
        yield


@contextmanager
def taken_again() -> Iterator[None]:
    """A signal that is sent again is received again."""

    def never(*_: Any) -> bool:
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_messages, "was_received", never)
        yield


class Bug(NamedTuple):
    """A bug, the program that shows it, what the explorer says, and how many faults it needs."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    symptom: str
    faults: int = 1


STUCK = "nothing is due and nothing runs"

BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(owned_by_its_front_end, "napping", STUCK),
        Bug(asked_for_and_left_alone, "napping", STUCK),
        Bug(taken_from_the_dead_and_left_alone, "napping", STUCK),
        Bug(parked_for_ever, "napping", STUCK, 2),
        Bug(taken_again, "hearing", "is posted already"),
    )
}
