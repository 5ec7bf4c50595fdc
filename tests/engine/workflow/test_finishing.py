"""Cancellation of what runs to its end, under every schedule of one fault, at every moment of its life."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from perdure import ProgramCall
from perdure.core.codec import JsonCodec
from perdure.core.ids import StepId
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.workflow import cancelling
from perdure.testing.explorer import ScheduleFailed
from perdure.testing.script import After
from perdure.testing.workflows import Race, explore_workflow
from tests.engine.catching import Record
from tests.engine.workflow.emptied import emptied
from tests.engine.workflow.finishing import (
    begin,
    cancel,
    check,
    ordering,
    racing,
    shielding,
    ship,
    shipping_graph,
)

PROGRAMS: dict[str, Callable[[], ProgramCall[str]]] = {
    "local": lambda: ordering("local"),
    "queued": lambda: ordering("queued"),
    "shielded": lambda: shielding("coroutine"),
    "shielded child": lambda: shielding("child"),
    "shielded result": lambda: shielding("started"),
    "shielded gather": lambda: shielding("gathered"),
    "branches": lambda: racing("branches"),
    "graph": shipping_graph,
}


def beginning(name: str) -> Callable[[], ProgramCall[str]]:
    def call() -> ProgramCall[str]:
        begin()
        return PROGRAMS[name]()

    return call


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        *(("local", 2), ("queued", 2), ("shielded", 2), ("branches", 1), ("graph", 1)),
        *(pytest.param(name, 1, marks=pytest.mark.deep) for name in PROGRAMS),
        pytest.param("shielded child", 2, marks=pytest.mark.deep),
        pytest.param("shielded result", 2, marks=pytest.mark.deep),
        pytest.param("shielded gather", 2, marks=pytest.mark.deep),
    ],
)
async def test_what_was_shipped_is_never_refunded(
    name: str, moment: int, record_property: Record
) -> None:
    explored = await explore_workflow(
        beginning(name),
        script=After(moment, cancel, at_once=True),
        queues=["elsewhere"],
        check=Race(check),
    )
    record_property("explored", f"finishing {name}, cancelled after {moment} commits: {explored}")


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["local", pytest.param("queued", marks=pytest.mark.deep)])
async def test_what_was_shipped_is_never_refunded_on_postgres(
    name: str, emptied_postgres: str, record_property: Record
) -> None:
    explored = await explore_workflow(
        beginning(name),
        script=After(2, cancel, at_once=True),
        queues=["elsewhere"],
        modes=["warm"],
        open_store=emptied(emptied_postgres),
        check=Race(check),
    )
    record_property("explored", f"finishing {name} on Postgres: {explored}")


@contextmanager
def attempts_stopped() -> Iterator[None]:
    """An attempt that is under way is stopped, whatever its task says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cancelling, "_ends_by_itself", lambda *_: False)
        yield


async def test_explorer_catches_a_refund_of_what_was_shipped() -> None:
    with attempts_stopped(), pytest.raises(ScheduleFailed, match="shipped, and"):
        await explore_workflow(
            beginning("local"),
            script=After(2, cancel, at_once=True),
            queues=["elsewhere"],
            check=Race(check),
        )


@pytest.mark.parametrize(
    ("place", "attempt", "retry_at_ms", "is_begun"),
    [
        (PromiseKind.LOCAL, 0, 0, False),
        (PromiseKind.LOCAL, 1, 0, True),  # under way, or in doubt after a crash
        (PromiseKind.LOCAL, 1, 5000, False),  # waits for its next attempt
        (PromiseKind.QUEUED, 0, 0, True),
        (PromiseKind.CHILD, 1, 0, False),
    ],
)
def test_attempt_in_doubt_counts_as_begun(
    place: PromiseKind, attempt: int, retry_at_ms: int, is_begun: bool
) -> None:
    promise = DurablePromise(StepId("root.1"), place, ship("x"), None, JsonCodec())
    promise.attempt, promise.retry_at_ms = attempt, retry_at_ms
    promise.call.use()
    assert promise.is_begun_task is is_begun
