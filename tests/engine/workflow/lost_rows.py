"""Stores that lose the rows that open runs wait for, whenever a host dies; and deliberate bugs of putting them back."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Retry, task, workflow
from perdure.core.ids import HostId
from perdure.engine.runs import required_rows
from perdure.host.runs import repair
from perdure.host.runs.repair import Repair
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run
from perdure.testing.explored_host import ExploredHost
from perdure.testing.explorer import OpenStore
from tests.engine.workflow.programs import Program
from tests.store.builders import raw

_OWED = "step IS NOT NULL AND kind NOT LIKE 'signal%'"
"""Timers, retries and results. What clients sent can't be known from a journal."""

LOSSES = {
    "deleted": (f"DELETE FROM {{}}message WHERE {_OWED}", "DELETE FROM {}work"),
    "out of delivery": (f"UPDATE {{}}message SET state = 'dead' WHERE {_OWED}",),
    "due never": (f"UPDATE {{}}message SET due_at_ms = 9000000000000000 WHERE {_OWED}",),
    "out of reach": (
        "UPDATE {}work SET available_at_ms = 9000000000000000, queue = 'nowhere' WHERE host IS NULL",
    ),
}


def losing(statements: Sequence[str], open_store: OpenStore) -> OpenStore:
    """Opens a store in which what these statements name is lost whenever a host takes over the runs of another."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        async with open_store() as store:
            take_over = store.take_over

            async def take_and_lose(from_owner: HostId, owner: HostId, limit: int) -> list[Run]:
                taken = await take_over(from_owner, owner, limit)
                for statement in statements if taken else ():
                    await raw(store, statement)
                return taken

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store, "take_over", take_and_lose, raising=False)
                yield store

    return opened


@contextmanager
def repairs_allowed() -> Iterator[list[str]]:
    """Collects which rows were written again; without this an explorer calls that a bug of the engine."""
    repaired: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExploredHost, "rows_repaired", lambda _, __, rows: repaired.extend(rows))
        yield repaired


@task(name="lost.flaky", retry=Retry(attempts=2, first=5))
async def flaky() -> int:
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")
    return 1


@task(name="lost.queued", queue="elsewhere", retry=Retry(attempts=2, first=3))
async def queued() -> int:
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")
    return 2


@workflow(name="lost.sleeping")
async def sleeping() -> str:
    await perdure.sleep(60)
    return "slept"


@workflow(name="lost.retrying")
async def retrying() -> int:
    return await flaky()


@workflow(name="lost.queueing")
async def queueing() -> int:
    return await queued()


@workflow(name="lost.child")
async def child() -> int:
    await perdure.sleep(1)
    return 3


@workflow(name="lost.parent")
async def parent() -> int:
    return await child() + 1


PROGRAMS = {
    "sleeping": (Program(sleeping, "completed", '"slept"'), "timer of step root.0"),
    "retrying": (Program(retrying, "completed", "1"), "retry of step root.0"),
    "queueing": (Program(queueing, "completed", "2"), "work of step root.0"),
    "parent": (Program(parent, "completed", "4"), "completed of step root.0"),
}
"""Each with a row that is written again under some schedule."""


CASES = [
    *((name, loss) for name in PROGRAMS for loss in LOSSES if loss != "out of reach"),
    ("queueing", "out of reach"),
]


def repaired_row(name: str, loss: str) -> str:
    """A row that is written again under some schedule."""
    if name == "queueing" and loss in ("out of delivery", "due never"):
        return "completed of step root.0"  # the work is done: its result is delivered, and it is not executed again
    return PROGRAMS[name][1]


# Deliberate bugs


@contextmanager
def nothing_put_back() -> Iterator[None]:
    """A load does not repair missing rows."""

    async def leave(*_: Any) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repair, "repair", leave)
        yield


@contextmanager
def result_of_child_forgotten() -> Iterator[None]:
    """The result of a child that is over is not written again."""

    async def none(*_: Any) -> list[Any]:
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repair, "_missing_results", none)
        yield


@contextmanager
def damaged_row_left_in_the_way() -> Iterator[None]:
    """A row is written again while the damaged one with its key is still there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "_without_damaged", lambda *_: Bundle())
        yield


@contextmanager
def pending_result_overlooked() -> Iterator[None]:
    """Work is put back though its result is on the way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(required_rows, "is_result", lambda *_: False)
        patch.setattr(repair, "has_outcome", lambda *_: False)
        yield


@contextmanager
def stored_result_overlooked() -> Iterator[None]:
    """Work is put back though its result is in the store, and a host has it in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "has_outcome", lambda *_: False)
        yield


class Bug(NamedTuple):
    """A bug, the program and the loss that show it, what the explorer says, and how many faults it needs."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    loss: str
    symptom: str
    faults: int = 1


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(nothing_put_back, "sleeping", "deleted", "nothing is due and nothing runs"),
        Bug(result_of_child_forgotten, "parent", "deleted", "nothing is due and nothing runs"),
        Bug(damaged_row_left_in_the_way, "sleeping", "out of delivery", "nothing is due"),
        Bug(pending_result_overlooked, "queueing", "out of reach", "began again after its comple"),
        Bug(stored_result_overlooked, "queueing", "out of delivery", "began again after its c", 2),
    )
}
