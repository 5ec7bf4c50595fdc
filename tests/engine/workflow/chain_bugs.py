"""Deliberate bugs of chains, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.core.messages import Message
from perdure.engine.runs.effects import ContinueAsNew
from perdure.engine.workflow.signals import WorkflowSignals
from perdure.host.messages import delivery
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store
from tests.engine.workflow.seeded_bugs import created_apart


@contextmanager
def buffered_signals_left_behind() -> Iterator[None]:
    """What a run had not received is not there when the next one begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkflowSignals, "left", lambda _: ())
        yield


@contextmanager
def late_messages_buried() -> Iterator[None]:
    """A message to a run that was continued is treated like one to a run that is over."""

    async def bury(store: Store, run: Run, message: Message) -> None:
        bundle = Bundle()
        bundle.mark(Fence(run.run_id, run.epoch), message.guid, "dead", "the run is continued")
        await store.commit(bundle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "forward", bury)
        yield


def next_run_created_apart() -> AbstractContextManager[None]:
    """A run ends in one commit, and the next one begins in another."""
    return created_apart(ContinueAsNew)


@contextmanager
def taken_messages_forgotten() -> Iterator[None]:
    """Whether an earlier run of the chain has had a message is not asked."""

    async def nothing(*_: Any) -> set[Any]:
        return set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteStore, "taken_in_chain", nothing)
        yield


class Bug(NamedTuple):
    """A bug, the program that meets it, after how many commits it is spoken to, and what the explorer says."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    moment: int
    symptom: str


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(buffered_signals_left_behind, "hoarding", 0, "nothing is due and nothing runs"),
        Bug(late_messages_buried, "parent", 0, "nothing is due and nothing runs"),
        Bug(next_run_created_apart, "looping", 0, "nothing is due and nothing runs"),
        Bug(taken_messages_forgotten, "draining", 0, "the run ended"),
    )
}
