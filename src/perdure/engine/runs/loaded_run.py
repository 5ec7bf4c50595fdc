"""A loaded run: its journal in memory, and the fence under which this host may write it."""

from collections.abc import Sequence
from enum import Enum

from perdure.core.errors import CorruptJournal
from perdure.core.journal.entry import NONCE_BYTES, Entry
from perdure.core.journal.events import Event
from perdure.core.journal.journal import Appended, Journal
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import NewRun, Run
from perdure.store.store import Store


class CommitMode(Enum):
    """How the parts of a transition are committed. Both ways write the same entries."""

    FUSED = "fused"
    """All parts in one commit: the normal mode."""

    STEPWISE = "stepwise"
    """Each part in a commit of its own."""


class LoadedRun:
    """A run that this host owns.

    While a commit is under way, the journal in memory is ahead of the store. If the commit is rejected, drop the run
    and load it again.
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
    """The run rebuilt from its entries, under the epoch of its row; and the events of the entries."""
    journal = Journal(run.run_id)
    events = journal.replay(entries)
    if (journal.seq, journal.head) != (run.seq, run.head):
        raise CorruptJournal(
            f"the journal of run {run.run_id!r} does not end where its row says ({run.seq} entries)",
            "call `Engine.verify()` to find what was changed, and restore it from a backup",
        )
    return LoadedRun(journal, Fence(run.run_id, run.epoch)), events


def create_run(bundle: Bundle, new: NewRun, events: Sequence[Event], sources: Sources) -> LoadedRun:
    """Add a new run and its first entries to the bundle."""
    journal = Journal(new.run_id)
    entropy = sources.entropy(NONCE_BYTES * len(events))
    appended = journal.append(events, sources.now_ms(), entropy)
    return LoadedRun(journal, bundle.create_run(new, appended))
