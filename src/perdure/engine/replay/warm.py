"""A warm run: its journal and its coroutines in memory, and how its changes reach a bundle."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from perdure.core.errors import CorruptJournal
from perdure.core.ids import RunId
from perdure.core.journal.journal import Journal
from perdure.core.messages import Message
from perdure.core.streams.chunks import ROOT, NewChunk
from perdure.engine.machine import RunMachine
from perdure.engine.replay.effects import (
    Acknowledge,
    AppendChunk,
    Birth,
    Broadcast,
    Change,
    Continue,
    Deliver,
    DropWork,
    Effect,
    Enqueue,
    Hook,
    IndexEffect,
    Mail,
    Publish,
    PutWork,
    Ready,
    Spawn,
    Track,
    Unhook,
    UntrackAll,
)
from perdure.engine.runs import LoadedRun, create_run
from perdure.engine.sources import Sources
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import NewRun, Run

Adopt = Callable[[Birth], None]
"""Makes the run that an effect asks for."""


class WarmRun:
    """A run that this host may write. Until its first commit `row` says what is to be created.

    Memory runs ahead of the store while a commit is under way. If one is rejected the run is dropped: only
    a fresh load is true then.
    """

    def __init__(
        self, machine: RunMachine, row: NewRun | Run, *, loaded: LoadedRun | None = None
    ) -> None:
        self.machine = machine
        self.scope = row.scope
        self.chain = row.chain
        """The first run of the chain that this one continues."""
        self.run_id: RunId = machine.info.run_id
        self.in_flight = 0
        """Commits under way: while there are any, the run stays in memory."""
        self.is_held = False
        """Whether who has its turn has it alone: the run takes in no fact meanwhile."""
        self.may_meet = False
        """Whether it has written a hook, or a signal for one, and nobody has looked for the other since."""
        self._loaded = loaded
        self._new = row if isinstance(row, NewRun) else None
        self._turn: asyncio.Lock | None = None

    @property
    def turn(self) -> asyncio.Lock:
        """Held from a fact to its commit where the parts of it are committed apart, or with a user's rows."""
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    @property
    def journal(self) -> Journal:
        return self._require_loaded().journal

    @property
    def fence(self) -> Fence:
        return self._require_loaded().fence

    @property
    def is_new(self) -> bool:
        """Whether it is still to be created."""
        return self._loaded is None

    def _require_loaded(self) -> LoadedRun:
        if self._loaded is None:
            raise CorruptJournal(f"run {self.run_id!r} is not created yet", "write it first")
        return self._loaded

    def write(
        self, bundle: Bundle, changes: Sequence[Change], sources: Sources, adopt: Adopt
    ) -> list[Message]:
        """Add the changes and all that commits with them. Returns the messages among it."""
        events = [change.event for change in changes]
        loaded = self._loaded
        if loaded is None and self._new is not None:
            self._loaded = create_run(bundle, self._new, events, sources)
        elif loaded is not None and events:
            bundle.append(loaded.fence, loaded.append(events, sources))
        sent: list[Message] = []
        for change in changes:
            for effect in change.effects:
                self._apply(bundle, effect, sources, adopt, sent)
        return sent

    def _apply(
        self,
        bundle: Bundle,
        effect: Effect,
        sources: Sources,
        adopt: Adopt,
        sent: list[Message],
    ) -> None:
        match effect:
            case Enqueue(message):
                bundle.enqueue(message)
                sent.append(message)
            case PutWork(work):
                bundle.put_work(self.fence, work)
            case DropWork(step):
                bundle.drop_work(self.fence, step)
            case Acknowledge(guid):
                bundle.acknowledge(self.fence, guid)
            case Publish(name, payload, at_ms):
                at_ms = sources.now_ms() if at_ms is None else at_ms
                bundle.publish(self.run_id, name, payload, at_ms)
            case AppendChunk(name, number, payload):
                at_ms = sources.now_ms()
                bundle.append_chunk(NewChunk(self.run_id, name, ROOT, number, payload, at_ms))
            case Spawn() | Continue():
                adopt(effect)
            case _:
                self._index(bundle, effect)

    def _index(self, bundle: Bundle, effect: IndexEffect) -> None:
        """What only graphs have: who is found by what, and which joins wait."""
        match effect:
            case Track(step, required, resolved):
                bundle.track(self.fence, step, required, resolved)
            case Deliver(given):
                bundle.deliver(self.fence, *msgspec.structs.astuple(given))
            case Ready(step):
                bundle.ready(self.fence, step)
            case UntrackAll():
                bundle.untrack_all(self.fence)
            case Hook(step, mailbox, kind, topic, key, since_ms):
                self.may_meet = True
                bundle.hook(self.fence, step, mailbox, kind, topic, key, since_ms)
            case Mail(message):
                self.may_meet = True
                bundle.enqueue(message)
            case Unhook(step):
                bundle.unhook(self.fence, step)
            case Broadcast(mailbox, kind, payload, suffix, now_ms, scrubs):
                bundle.broadcast(self.fence, mailbox, kind, payload, suffix, now_ms, scrubs)
