"""The history of a run: its contract events, its view and its ledger, of a chain those of all its runs."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec

from perdure.client.runs.parameters import read_parameters
from perdure.client.runs.rows import require_unparked
from perdure.client.runs.streams import require_offset
from perdure.core.errors import InvalidId
from perdure.core.ids import RunId
from perdure.core.journal.contract import ENDS_OF_RUN, EventType
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import Status
from perdure.core.ledger import AccountId, layout_of, spell_balance
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.contract_reader import ContractReader
from perdure.core.runs.decided_acts import DecidedAct, decided_in, set_aside
from perdure.core.runs.projection import Projection
from perdure.core.runs.snapshot import RunSnapshot, SequenceGap
from perdure.core.runs.tracing import TraceSpan, spans_of
from perdure.host.host import Host
from perdure.host.runs.feed import Follower
from perdure.host.runs.parking import require_undamaged
from perdure.host.runs.views import ENTRIES_PER_READ, reader_of
from perdure.store.rows.records import Run

ReadRow = Callable[[RunId | None], Awaitable[Run]]
"""Reads the row of a run; without an id, of the run whose history is read."""


class LedgerAccount(msgspec.Struct, frozen=True):
    """An account of a run's ledger, spelled out. `account` is `step:` and a step, or `message:` and a GUID."""

    run_id: RunId
    account: AccountId
    balance: int
    text: str
    """The 15 digits of the balance, and the meaning of each that is posted."""

    def __str__(self) -> str:
        return f"{self.account}  {self.text}"


class _Batch(NamedTuple):
    """Events that were read at once; without events, why there are none: an entry is missing."""

    events: list[ContractEvent]
    gap: SequenceGap | None = None


class HistoryReader:
    """Reads the history of the chain that a run belongs to."""

    def __init__(self, host: Host, read_row: ReadRow) -> None:
        self._host = host
        self._store = host.context.store
        self._read_row = read_row

    async def chain(self) -> list[Run]:
        """The rows of the chain, in order."""
        run = await self._read_row(None)
        chain = [run]
        if run.chain is not None or run.status is Status.CONTINUED:
            chain = await self._store.chain(run.origin)
        for each in chain:
            require_undamaged(each)
        return chain

    async def history(self, first: int) -> AsyncGenerator[ContractEvent, None]:
        """Yield the events that are durable now, read in bounded pages."""
        chain = await self.chain()
        place, first = place_of(chain, first)
        for at in range(place, len(chain)):
            readers, run = self._host.readers, chain[at]
            reader = readers.nearest(reader_of(self._host.context, chain, at), first)
            while reader.seq < run.seq:
                readers.keep(reader)
                end = min(reader.seq + ENTRIES_PER_READ, run.seq)
                for event in _events(reader, await self._entries(reader, end), first):
                    yield event
                if reader.seq < end:
                    raise reader.missing(end)
            first = 0

    async def _entries(self, reader: ContractReader, end: int) -> list[Entry]:
        return await self._store.entries(reader.origin.run_id, reader.seq, end)

    async def follow(self, first: int) -> AsyncGenerator[ContractEvent, None]:
        """Yield all events to the end of the chain, each new one when it is durable."""
        async with aclosing(self._batches(first, None, projects=False)) as batches:
            async for batch in batches:
                for event in batch.events:
                    yield event

    async def watch(self) -> AsyncGenerator[RunSnapshot, None]:
        """Yield the view now, and a new one whenever it changes."""
        view = await self._host.views.view(await self.chain())
        snapshot, reader = view.projection.snapshot(), view.reader
        yield snapshot
        if snapshot.is_over:
            return
        projection = Projection(snapshot)
        first = snapshot.last_event_seq + 1
        async with aclosing(self._batches(first, reader, projects=True)) as batches:
            async for batch in batches:
                projection.apply(batch.events)
                if batch.gap is not None:
                    projection.halt(batch.gap)
                after = projection.snapshot()
                if after != snapshot:
                    snapshot = after
                    yield snapshot

    async def view(self) -> RunSnapshot:
        return (await self._host.views.view(await self.chain())).projection.snapshot()

    async def decisions(self) -> list[DecidedAct]:
        found: list[DecidedAct] = []
        for run in await self.chain():
            run_id, origin = run.run_id, run.origin
            entries = await self._store.decisions(run_id)
            found += [decided_in(entry, run_id, origin) for entry in entries]
            messages = await self._store.acts_set_aside(run_id)
            acts = (set_aside(message, verdict, origin) for message, verdict in messages)
            found += [act for act in acts if act is not None]
        return found

    async def params(self) -> dict[str, Any]:
        run = (await self.chain())[-1]
        decisions = [entry.event for entry in await self._store.decisions(run.run_id)]
        return await read_parameters(self._host.dispatcher, run, decisions)

    async def ledger(self) -> list[LedgerAccount]:
        accounts = []
        for run in await self.chain():
            balances = await self._store.balances(run.run_id)
            for account in sorted(balances, key=_order):
                balance = balances[account]
                text = _spelled(account, balance)
                accounts.append(LedgerAccount(run.run_id, account, balance, text))
        return accounts

    async def trace(self) -> list[TraceSpan]:
        spans = []
        for run in await self.chain():
            entries = await self._store.entries(run.run_id)
            spans += spans_of(run.run_id, run.created_at_ms, entries)
        return spans

    async def _batches(
        self, first: int, reader: ContractReader | None, *, projects: bool
    ) -> AsyncGenerator[_Batch, None]:
        """Yield the events from `first` on as they are read, run by run. A `reader` that is given is already there."""
        chain = await self.chain()
        place, first = place_of(chain, first)
        if reader is not None:
            place = [run.run_id for run in chain].index(reader.origin.run_id)
        while True:
            if reader is None:
                fresh = reader_of(self._host.context, chain, place)
                reader = self._host.readers.nearest(fresh, first)
            run_id, seq = reader.origin.run_id, reader.seq
            async with self._host.feed.follow(run_id, seq, projects=projects) as follower:
                self._host.follows(run_id)
                while reader.last not in ENDS_OF_RUN:
                    entries = await follower.take()
                    events = _events(reader, entries, first)
                    if events:
                        yield _Batch(events)
                    if follower.gap is not None:
                        yield _Batch([], _gap_of(reader, follower))
                    elif not entries and await self._is_over(reader, follower):
                        return
            if reader.last is not EventType.RUN_CONTINUED:
                return
            chain = await self._store.chain(chain[0].origin)
            place, first, reader = place + 1, 0, None

    async def _is_over(self, reader: ContractReader, follower: Follower) -> bool:
        """Whether the run ended with the last entry that was read. Raises if it does not continue by itself."""
        run = await self._read_row(reader.origin.run_id)
        if not run.is_over:
            await require_unparked(self._store, run)
            return False
        if reader.seq >= run.seq:
            return True
        if not await self._entries(reader, run.seq):
            raise reader.missing(run.seq)
        follower.set()  # it has ended since the last read
        return False


def _events(reader: ContractReader, entries: list[Entry], first: int) -> list[ContractEvent]:
    """The events of these entries, without those before entry `first`."""
    wanted = []
    for entry in entries:
        if entry.seq < first:
            reader.skip(entry)
        else:
            wanted.append(reader.read(entry))
    return wanted


def place_of(chain: list[Run], first: int) -> tuple[int, int]:
    """Which run of the chain has the entry with that offset, and the entry's number there."""
    for place, run in enumerate(chain[:-1]):
        if first < run.seq:
            return place, first
        first -= run.seq
    return len(chain) - 1, first


def _gap_of(reader: ContractReader, follower: Follower) -> SequenceGap | None:
    if follower.gap is None:
        return None
    expected, found = follower.gap
    return SequenceGap(reader.origin.offset + expected, reader.origin.offset + found)


def _spelled(account: AccountId, balance: int) -> str:
    try:
        return spell_balance(balance, layout_of(account))
    except InvalidId as error:
        return f"{balance}  {error.what}"


def _order(account: str) -> list[tuple[int, str]]:
    """Sorts accounts by the numbers in their names: `step:root.10` after `step:root.9`."""
    parts = re.split(r"(\d+)", account)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


class HistoryMethods(ABC):
    """The methods of `Handle` that read a run's history."""

    @abstractmethod
    def _history(self, what: str) -> HistoryReader:
        """A reader for `what`. Raises inside a transaction."""

    def history(self, first: int = 0) -> AsyncGenerator[ContractEvent, None]:
        """Yield the run's events from `offset` `first` on, as far as they are durable now.

        They are read in bounded pages, so a long history needs little memory. The histories of a chain follow each
        other, and offsets count through the whole chain. Raises `CorruptJournal` if an entry is missing.
        """
        return self._history("the history").history(require_offset(first))

    def follow(self, first: int = 0) -> AsyncGenerator[ContractEvent, None]:
        """Yield the run's events from `offset` `first` on, and each new one when it is durable, to the end of the run.

        If an entry is missing, it waits until the entry is there. For a parked run it yields all events and then raises
        `RunDiverged`.
        """
        return self._history("the history").follow(require_offset(first))

    async def view(self) -> RunSnapshot:
        """The state of the run as one immutable value, with all its steps; of a chain, that of all its runs as one.

        It is up to date when it is returned: it is folded from the journal, and the next call reads only newer entries.
        """
        return await self._history("the view").view()

    def watch(self) -> AsyncGenerator[RunSnapshot, None]:
        """Yield the run's view, and a new one whenever it changes, to the end of the run.

        Entries that arrive together make one view. If an entry is missing, the view is stale (`gap`) until the entry is
        there.
        """
        return self._history("the view").watch()

    async def decisions(self) -> list[DecidedAct]:
        """The decisions on operators' acts on the run, or on the runs of its chain: in the journal, then those without
        an entry, such as the forks of a run that had ended."""
        return await self._history("the decisions").decisions()

    async def params(self) -> dict[str, Any]:
        """The values of the run's parameters now, in their stored form.

        Where this process has the program, defaults fill in those that were never given.
        """
        return await self._history("the parameters").params()

    async def ledger(self) -> list[LedgerAccount]:
        """The accounts of the run's ledger, spelled out: of each step and of each message to the run."""
        return await self._history("the ledger").ledger()

    async def trace(self) -> list[TraceSpan]:
        """The spans of the run and of its attempts, as its journal records them; child runs have traces to ask for."""
        return await self._history("the trace").trace()
