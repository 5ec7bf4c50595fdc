"""A run in memory: its journal, the right to write it, and how planned parts reach the store."""

from collections.abc import Sequence
from enum import Enum

from perdure.core.errors import CorruptJournal
from perdure.core.ids import Guid
from perdure.core.journal.entry import NONCE_BYTES, Entry
from perdure.core.journal.events import Event
from perdure.core.journal.journal import Appended, Journal
from perdure.core.legs import Part
from perdure.engine.sources import Sources
from perdure.store.bundle import Bundle
from perdure.store.primitives import Fence
from perdure.store.records import NewRun, Run
from perdure.store.store import Store


class Mode(Enum):
    """How the parts of a transition are committed. Same parts, same entries, either way."""

    FUSED = "fused"
    """All parts in one commit: the normal way."""

    STEPWISE = "stepwise"
    """Each part in a commit of its own."""


class LoadedRun:
    """A run that this host may write.

    The journal in memory runs ahead of the store while a commit is under way. If the commit is
    rejected the run must be dropped: only a fresh load is true then.
    """

    def __init__(self, journal: Journal, fence: Fence) -> None:
        self.journal = journal
        self.fence = fence

    def append(self, events: Sequence[Event], sources: Sources) -> Appended:
        entropy = sources.entropy(NONCE_BYTES * len(events))
        return self.journal.append(events, sources.now_ms(), entropy)


async def load_run(store: Store, run: Run) -> LoadedRun:
    """Read a run's entries and rebuild it, under the epoch of the given row."""
    loaded, _ = rebuild_run(run, await store.entries(run.run_id, 0, run.seq))
    return loaded


def rebuild_run(run: Run, entries: Sequence[Entry]) -> tuple[LoadedRun, list[Event]]:
    """A run as its entries tell it, under the epoch of its row; and their events."""
    journal = Journal(run.run_id)
    events = journal.replay(entries)
    if (journal.seq, journal.head) != (run.seq, run.head):
        raise CorruptJournal(
            f"the journal of run {run.run_id!r} does not end where its row says ({run.seq} entries)",
            "run `verify` to find what was changed, and restore it from a backup",
        )
    return LoadedRun(journal, Fence(run.run_id, run.epoch)), events


def create_run(bundle: Bundle, new: NewRun, events: Sequence[Event], sources: Sources) -> LoadedRun:
    """Add a run's birth, with its first entries, to the bundle."""
    journal = Journal(new.run_id)
    entropy = sources.entropy(NONCE_BYTES * len(events))
    appended = journal.append(events, sources.now_ms(), entropy)
    return LoadedRun(journal, bundle.create_run(new, appended))


async def commit_parts(
    store: Store,
    run: LoadedRun,
    guid: Guid,
    parts: Sequence[Part],
    sources: Sources,
    mode: Mode = Mode.FUSED,
) -> None:
    """Commit the parts of the transition that the message `guid` asked for."""
    bundle = Bundle()
    for part in parts:
        _add_part(bundle, run, guid, part, sources)
        if mode is Mode.STEPWISE:
            await store.commit(bundle)
            bundle = Bundle()
    if mode is Mode.FUSED:
        await store.commit(bundle)


async def commit_start(
    store: Store,
    new: NewRun,
    guid: Guid,
    parts: Sequence[Part],
    sources: Sources,
    mode: Mode = Mode.FUSED,
) -> LoadedRun:
    """Commit the birth of a run: its inception, and with it or after it the other parts."""
    inception, *rest = parts
    bundle = Bundle()
    run = create_run(bundle, new, inception.events, sources)
    if mode is Mode.STEPWISE:
        await store.commit(bundle)
        await commit_parts(store, run, guid, rest, sources, mode)
    else:
        for part in rest:
            _add_part(bundle, run, guid, part, sources)
        await store.commit(bundle)
    return run


def _add_part(bundle: Bundle, run: LoadedRun, guid: Guid, part: Part, sources: Sources) -> None:
    if part.settlement is not None:
        appended = run.append(part.events, sources)
        bundle.spawn(run.fence, appended, guid, part.settlement, part.messages)
    else:
        if part.events:
            bundle.append(run.fence, run.append(part.events, sources))
        for message in part.messages:
            bundle.enqueue(message)
    for work in part.work:
        bundle.put_work(run.fence, work)
    if part.acknowledges:
        bundle.acknowledge(run.fence, guid)
    if part.mark is not None:
        bundle.mark(run.fence, guid, part.mark, f"{part.mark} when it was delivered")
