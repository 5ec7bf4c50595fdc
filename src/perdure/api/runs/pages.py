"""Entries of journals with their postings, read from the store; the next page does not read from the beginning."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from perdure.api.exchange import Exchange
from perdure.client.runs.history import place_of
from perdure.core.errors import LedgerError
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.journal.postings import effect_of
from perdure.core.ledger import AccountId, digits_of
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.contract_reader import ContractReader
from perdure.host.runs.views import reader_of
from perdure.store.rows.records import Run

MOST_READERS: Final = 64
"""Places in journals that are remembered."""

ENTRIES_PER_READ: Final = 1000


class ShownPosting(msgspec.Struct, frozen=True):
    """An increment of an account, as digits and as a number."""

    account: AccountId
    increment: str
    value: int


class BookedEvent(ContractEvent, frozen=True, kw_only=True):
    """A contract event with what its entry posted to the ledger, and its place in the hash chain."""

    entry: str
    hash: str
    postings: list[ShownPosting]
    semaphore: int


def booked(event: ContractEvent, entry: Entry) -> BookedEvent:
    """The event with its postings."""
    try:
        postings, change = effect_of(entry.event)
    except LedgerError:
        postings, change = (), 0
    shown = [ShownPosting(account, digits_of(value), value) for account, value in postings]
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    name = type(entry.event).__name__
    return BookedEvent(
        **fields, entry=name, hash=entry.hash.hex(), postings=shown, semaphore=change
    )


class _Readers:
    """Readers at the places where the last pages ended."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[RunId, int], ContractReader] = OrderedDict()

    def nearest(self, run_id: RunId, first: int) -> ContractReader | None:
        """A reader of that run, as close before entry `first` as there is one."""
        places = [seq for held, seq in self._held if held == run_id and seq <= first]
        return self._held[run_id, max(places)].copied() if places else None

    def keep(self, reader: ContractReader) -> None:
        self._held[reader.origin.run_id, reader.seq] = reader.copied()
        while len(self._held) > MOST_READERS:
            self._held.popitem(last=False)


async def booked_events(
    exchange: Exchange, chain: Sequence[Run], first: int, limit: int
) -> AsyncIterator[BookedEvent]:
    """The entries of a chain from offset `first` on, at most `limit`."""
    readers: _Readers = exchange.shared.setdefault("readers", _Readers())
    place, seq = place_of(list(chain), first)
    for at in range(place, len(chain)):
        run = chain[at]
        reader = readers.nearest(run.run_id, seq) or reader_of(exchange.host.context, chain, at)
        while reader.seq < run.seq and limit:
            end = min(reader.seq + ENTRIES_PER_READ, run.seq, max(seq, reader.seq) + limit)
            entries = await exchange.store.entries(run.run_id, reader.seq, end)
            for entry in entries:
                if entry.seq < seq:
                    reader.skip(entry)
                    continue
                yield booked(reader.read(entry), entry)
                limit -= 1
            if reader.seq < end:
                raise reader.missing(end)
            readers.keep(reader)
        seq = 0
