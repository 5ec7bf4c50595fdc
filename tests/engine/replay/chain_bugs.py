"""Deliberate bugs of chains, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.core.messages import Message
from perdure.engine.replay.effects import Change, Continue
from perdure.engine.replay.signals import Signals
from perdure.engine.replay.warm import WarmRun
from perdure.host import delivery
from perdure.host.batch import start_of
from perdure.host.host import Host
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import Run
from perdure.store.sqlite.store import SqliteStore
from perdure.store.store import Store


@contextmanager
def buffered_signals_left_behind() -> Iterator[None]:
    """What a run had not received is not there when the next one begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Signals, "left", lambda _: ())
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


@contextmanager
def next_run_created_apart() -> Iterator[None]:
    """A run ends in one commit, and the next one begins in another."""
    commit = Host._commit

    async def loose(self: Host, run: WarmRun) -> None:
        changes = run.machine.record.changes
        births = [x for change in changes for x in change.effects if isinstance(x, Continue)]
        for place, change in enumerate(changes):
            kept = tuple(x for x in change.effects if not isinstance(x, Continue))
            changes[place] = Change(change.event, kept)
        await commit(self, run)
        for birth in births:
            await commit(self, self._new_run(birth.run_id, start_of(run, birth)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "_commit", loose)
        yield


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
        Bug(next_run_created_apart, "looping", 0, "the run ended continued"),
        Bug(taken_messages_forgotten, "draining", 0, "the run ended"),
    )
}
