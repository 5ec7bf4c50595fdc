"""Small workflows whose steps write rows of their own. What each returns tells how many rows there are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import pytest

import perdure
from perdure import Retry, Transaction, task, workflow
from perdure.core.errors import CommitRejected
from perdure.host.runs.batch import Batch
from perdure.host.transactions.joining import OwnTransaction
from tests.engine.workflow.programs import Program, approval, approve_once

MAKE = "CREATE TABLE IF NOT EXISTS effects (step text)"


async def leave_row(tx: Transaction) -> None:
    await tx.execute(MAKE)
    await tx.execute("INSERT INTO effects VALUES ($1)", perdure.info().step)


@task(transactional=True)
async def leave_effect(tx: Transaction) -> str:
    await leave_row(tx)
    return perdure.info().step


@task(transactional=True, retry=Retry(attempts=2, first=3))
async def leave_effect_at_last(tx: Transaction) -> None:
    await leave_row(tx)
    if perdure.info().attempt == 1:
        raise ConnectionError("not yet")


@task(transactional=True)
async def count_effects(tx: Transaction) -> list[str]:
    await tx.execute(MAKE)
    return [row["step"] for row in await tx.fetch("SELECT step FROM effects ORDER BY step")]


@task
async def plain(n: int) -> int:
    return n


@workflow
async def effects_in_a_row() -> list[str]:
    for _ in range(3):
        await leave_effect()
    return await count_effects()


@workflow
async def effects_side_by_side() -> list[str]:
    await perdure.gather(leave_effect(), plain(1), leave_effect(), approval.receive())
    return await count_effects()


@workflow
async def effects_with_a_retry() -> list[str]:
    await leave_effect_at_last()
    await perdure.sleep(5)
    return await count_effects()


@workflow
async def effect_of_a_child() -> str:
    return await leave_effect()


@workflow
async def effects_in_the_family() -> list[str]:
    await leave_effect()
    await effect_of_a_child()
    perdure.publish("stage", "over")
    return await count_effects()


PROGRAMS = {
    "in a row": Program(effects_in_a_row, "completed", '["root.0","root.1","root.2"]'),
    "side by side": Program(effects_side_by_side, "completed", '["root.0","root.2"]', approve_once),
    "with a retry": Program(effects_with_a_retry, "completed", '["root.0"]'),
    "in the family": Program(effects_in_the_family, "completed", '["root.0","root.0"]'),
}


# Deliberate bugs


@contextmanager
def rows_before_completion() -> Iterator[None]:
    """The rows are committed, and then the completion."""

    async def apart(self: OwnTransaction, turn: Batch | None = None) -> None:
        assert turn is not None
        await self.rows.commit([])
        await self.dispatcher.store.commit(turn.bundle)
        self.dispatcher.settle(turn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnTransaction, "commit", apart)
        yield


@contextmanager
def rows_kept_when_the_run_is_lost() -> Iterator[None]:
    """Another host owns the run, but the rows that the body wrote stay."""

    async def kept(self: OwnTransaction, turn: Batch | None = None) -> None:
        assert turn is not None
        run = await self.rows.run(turn.run.run_id)
        assert run is not None
        if run.epoch == turn.run.fence.epoch:
            await right(self, turn)
            return
        await self.rows.commit([])
        self.dispatcher.undo(turn)
        raise CommitRejected("the run is lost", "drop it")

    right = OwnTransaction.commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnTransaction, "commit", kept)
        yield


class Bug(NamedTuple):
    """A bug, the program that meets it, and what the explorer then says."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    symptom: str


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(rows_before_completion, "in a row", "without the completion of their step"),
        Bug(rows_kept_when_the_run_is_lost, "in a row", "without the completion of their step"),
    )
}
