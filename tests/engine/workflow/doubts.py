"""Workflows whose tasks have effects outside the store, for the policies of doubt; and bugs in how those are kept.

The world outside is a count per idempotency key: a service that remembers who asked for what, and does as often as it
is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import NotDone, ProgramCall, Retry, StepInDoubt, task, workflow
from perdure.core.replay.doubt import Resolution
from perdure.engine.runs import doubts as run_doubts
from perdure.engine.runs.promise import DurablePromise
from perdure.engine.runs.warm import WarmRun
from perdure.host.tasks.attempt import Attempt
from perdure.host.tasks.executor import Executor
from perdure.host.tasks.quarantine import Quarantine
from perdure.store.rows.records import Claim
from perdure.testing.workflows import Ended

EFFECTS: Counter[str] = Counter()
"""How often each key was acted on."""

FOUND = 1000
"""What tells a result that was found from one that was made."""


def act(n: int) -> int:
    EFFECTS[perdure.key()] += 1
    return n


def find(key: str) -> int:
    if key not in EFFECTS:
        raise NotDone
    assert key == perdure.key()
    return FOUND


async def find_with(key: str, n: int, *, factor: int) -> int:
    await asyncio.sleep(0)
    find(key)
    return n * factor


@task(on_doubt=find)
def transfer(n: int) -> int:
    act(n)
    return FOUND


@task(on_doubt=find_with)
async def scaled_transfer(n: int, *, factor: int = 3) -> int:
    return act(n) * factor


@task(on_doubt=find_with, retry=Retry(attempts=3, first=5))
async def stubborn_transfer(n: int, *, factor: int = 3) -> int:
    if perdure.info().attempt == 1:
        raise ConnectionError("before the effect")
    act(n)
    return n * factor


@task(queue="elsewhere", on_doubt=find_with, retry=Retry(attempts=2, first=5))
async def queued_transfer(n: int, *, factor: int = 3) -> int:
    return act(n) * factor


@task(on_doubt="fail")
async def launch(n: int) -> int:
    return act(n)


@task(on_doubt="fail", queue="elsewhere")
async def queued_launch(n: int) -> int:
    return act(n)


@workflow
async def transferring(n: int) -> list[int]:
    first = await transfer(n)
    return [first, *await perdure.gather(scaled_transfer(n), stubborn_transfer(n))]


@workflow
async def transferring_elsewhere(n: int) -> list[int]:
    return [*await perdure.gather(queued_transfer(n), queued_transfer(2 * n))]


@workflow
async def launching(n: int) -> int:
    for attempt in (launch(n), queued_launch(n), launch(n)):
        try:
            await attempt
        except StepInDoubt:
            perdure.publish("in doubt", True)
    return n


@workflow
async def launching_once(n: int) -> int:
    with suppress(StepInDoubt):
        await launch(n)
    return n


class Program(NamedTuple):
    """A workflow, the result that it has under every schedule, and how often its effects may happen."""

    make: Callable[[], ProgramCall[Any]]
    result: str
    keys: int
    at_least: int

    def call(self) -> ProgramCall[Any]:
        EFFECTS.clear()
        return self.make()

    def check(self, ended: Ended) -> None:
        assert (ended.payload or b"").decode() == self.result, f"it returned {ended}"
        assert set(EFFECTS.values()) <= {1}, f"an effect happened twice: {EFFECTS}"
        assert self.at_least <= len(EFFECTS) <= self.keys, f"not every effect happened: {EFFECTS}"


PROGRAMS = {
    "reconciled": Program(lambda: transferring(7), "[1000,21,21]", 3, 3),
    "reconciled elsewhere": Program(lambda: transferring_elsewhere(7), "[21,42]", 2, 2),
    "failed": Program(lambda: launching(7), "7", 3, 0),
    "failed once": Program(lambda: launching_once(7), "7", 1, 0),
}


@contextmanager
def reconcile_not_asked() -> Iterator[None]:
    """A step in doubt is begun again, whatever its reconcile function would say."""

    async def deaf(*_: Any) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_reconcile", deaf)
        yield


@contextmanager
def answer_dropped() -> Iterator[None]:
    """The reconcile function is asked, and its answer is lost on the way."""
    reconcile = Executor._reconcile

    async def forgetful(self: Executor, body: Attempt, arguments: Any) -> None:
        await reconcile(self, body, arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "_reconcile", forgetful)
        yield


@contextmanager
def doubt_not_journaled() -> Iterator[None]:
    """A step in doubt is begun again, and nothing says so: the next attempt does not know of the doubt."""

    def silent(warm: WarmRun, promise: DurablePromise, _: int) -> None:
        promise.is_running = False
        warm.machine.unstarted.append(promise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_doubts, "_doubt", silent)
        yield


@contextmanager
def policy_not_asked() -> Iterator[None]:
    """Every step in doubt is begun again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_doubts, "resolve", lambda *_: Resolution.RETRY)
        yield


@contextmanager
def verdict_forgotten() -> Iterator[None]:
    """That a step is to fail is only known until the next crash."""

    def forgetful(self: DurablePromise, count: int, _: Resolution, *, is_stopped: bool) -> None:
        assert not is_stopped
        self.doubts += count
        self.is_running = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DurablePromise, "doubt", forgetful)
        yield


@contextmanager
def lost_claims_not_counted() -> Iterator[None]:
    """Work that a dead host had claimed counts as work that was never begun."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "doubts", 0)
        yield


@contextmanager
def turn_not_passed_on() -> Iterator[None]:
    """The quarantine never admits the next step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quarantine, "watch", lambda *_: None)
        yield


class Bug(NamedTuple):
    """A bug, the program that meets it, how that is run, and what the explorer then says."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    symptom: str
    mode: str = "warm"
    faults: int = 1


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(reconcile_not_asked, "reconciled", "happened twice"),
        Bug(answer_dropped, "reconciled", "without faults it ends"),
        Bug(doubt_not_journaled, "reconciled", "happened twice"),
        Bug(policy_not_asked, "failed", "happened twice"),
        Bug(verdict_forgotten, "failed once", "happened twice", "stepwise", 2),
        Bug(lost_claims_not_counted, "reconciled elsewhere", "happened twice"),
    )
}
