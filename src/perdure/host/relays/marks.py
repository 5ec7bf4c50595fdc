"""The marks of a relay on their way to the store: many are written together."""

from collections.abc import Collection

from perdure.store.bus_table import DeadLetter, PublicationKey, RelayProgress
from perdure.store.store import Store

FLUSH_MS = 500
"""How long a mark may wait to be written, together with others."""


class Marks:
    """What is published since the last write."""

    def __init__(self, store: Store, bus: str, holder: str) -> None:
        self._store = store
        self._bus = bus
        self._holder = holder
        self._progress = RelayProgress()
        self.next_flush_ms = 0

    def __bool__(self) -> bool:
        return bool(self._progress)

    def __contains__(self, key: PublicationKey) -> bool:
        return key in self._progress.marks

    def set(self, key: PublicationKey, seq: int) -> None:
        """Everything before `seq` is published."""
        self._progress.marks[key] = seq

    def end(self, key: PublicationKey) -> None:
        """All of it is published."""
        self._progress.marks.pop(key, None)
        self._progress.ended.append(key)

    def give_up(self, letter: DeadLetter) -> None:
        self._progress.dead_letters.append(letter)

    async def write(self, lease_until_ms: int) -> Collection[PublicationKey]:
        """Commits: the marks and the lease, and dead letters. Returns whose lease that is."""
        progress, self._progress = self._progress, RelayProgress()
        if not progress:
            return ()
        try:
            await self._store.buses.advance(self._bus, self._holder, progress, lease_until_ms)
        except BaseException:
            later = self._progress
            self._progress = RelayProgress(
                progress.marks | later.marks,
                [*progress.ended, *later.ended],
                [*progress.dead_letters, *later.dead_letters],
            )
            raise
        return progress.marks.keys()
