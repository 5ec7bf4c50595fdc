"""Readers of histories, kept at places in their journals: a page deep in a long history begins at the nearest one.

An event shows what came before it, such as the number of its logical attempt, so a reader passes over all entries
before the first that is wanted. Where it was, and places on the way, stay in memory, least recently used run first out.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Final

from perdure.core.ids import RunId
from perdure.core.runs.contract_reader import ContractReader

STRIDE: Final = 10_000
"""Entries from one place to the next on the way through a journal."""

MAX_SIZE: Final = 200_000
"""What the readers in memory may hold together, in steps at about 100 bytes each."""


class Readers:
    """The readers in the memory of this process."""

    def __init__(self) -> None:
        self._of_runs: OrderedDict[RunId, list[ContractReader]] = OrderedDict()
        """Of each run, in the order of their places."""
        self.size = 0
        """What they hold together."""

    def nearest(self, fresh: ContractReader, first: int) -> ContractReader:
        """A reader for the entries from `first` on: at the last place before it, else `fresh`."""
        run_id = fresh.origin.run_id
        found = self._of_runs.get(run_id, [])
        at = bisect_right(found, first, key=_place)
        if not at or found[at - 1].origin != fresh.origin:
            return fresh
        self._of_runs.move_to_end(run_id)
        return found[at - 1].copied()

    def keep(self, reader: ContractReader) -> None:
        """Keep the place of this reader, which its owner may then move."""
        if reader.seq < STRIDE:
            return  # quick to read again
        kept = self._of_runs.setdefault(reader.origin.run_id, [])
        at = bisect_right(kept, reader.seq, key=_place)
        if at and kept[at - 1].seq > reader.seq - STRIDE:
            return
        insort(kept, reader.copied(), key=_place)
        self.size += reader.size
        self._of_runs.move_to_end(reader.origin.run_id)
        while self.size > MAX_SIZE and self._of_runs:
            _, dropped = self._of_runs.popitem(last=False)
            self.size -= sum(each.size for each in dropped)


def _place(reader: ContractReader) -> int:
    return reader.seq
