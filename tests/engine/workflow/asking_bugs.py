"""Deliberate bugs of requests and their answers, as switches: the explorer must catch each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from perdure.client.runs import asking
from perdure.core.ids import Guid, RunId, message_guid
from perdure.core.journal import events as e
from perdure.engine.runs.effects import AppendChunk, RunEffect
from perdure.engine.runs.record import Record
from perdure.host.runs.batch import Batch
from perdure.host.runs.dispatcher import Dispatcher
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided


@contextmanager
def reply_before_commit() -> Iterator[None]:
    """An answer is stored before the entries that decided it."""
    submit = Dispatcher._submit

    def hasty(self: Dispatcher, batch: Batch, on_decided: OnDecided) -> None:
        if batch.bundle.chunks:
            early = Bundle()
            early.chunks, batch.bundle.chunks = batch.bundle.chunks, ()
            self.store.submit(early, lambda _: None)
        submit(self, batch, on_decided)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "_submit", hasty)
        yield


@contextmanager
def doubled_ask_answered_twice() -> Iterator[None]:
    """A request that is sent again is another request."""
    sent = iter(range(1_000_000))

    def another(run_id: RunId, name: str, sender: str) -> Guid:
        return message_guid(run_id, "signal", name, sender, str(next(sent)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "signal_guid", another)
        yield


@contextmanager
def reply_lost_at_takeover() -> Iterator[None]:
    """A run that was replayed keeps its answers to itself."""
    begin, attach = Record.__init__, Record.attach
    replayed: set[int] = set()

    def noted(self: Record, recorded: Sequence[e.Event], *others: Any) -> None:
        begin(self, recorded, *others)
        (replayed.add if recorded else replayed.discard)(id(self))

    def careless(self: Record, effect: RunEffect) -> None:
        if not (isinstance(effect, AppendChunk) and id(self) in replayed):
            attach(self, effect)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Record, "__init__", noted)
        patch.setattr(Record, "attach", careless)
        yield


class Bug(NamedTuple):
    """A bug, the program that meets it, and what the explorer says."""

    seed: Callable[[], AbstractContextManager[None]]
    program: str
    symptom: str


BUGS = {
    bug.seed.__name__: bug
    for bug in (
        Bug(reply_before_commit, "answering", "clients read"),
        Bug(doubled_ask_answered_twice, "answering", "the run has answered"),
        Bug(reply_lost_at_takeover, "answering", "answers are"),
    )
}
