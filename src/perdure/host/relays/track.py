"""What a relay holds of one publication, in memory."""

import asyncio
from collections.abc import Collection, Mapping

import msgspec

from perdure.core.errors import PerdureError
from perdure.core.runs.contract_event import ContractEvent
from perdure.core.runs.contract_reader import ContractReader
from perdure.store.bus_table import Publication, PublicationKey

NO_TAGS: Mapping[str, str] = {}


class Track(msgspec.Struct, eq=False):
    """A publication that this relay has claimed. `seq` is the next entry to publish."""

    key: PublicationKey
    seq: int
    end_seq: int | None
    lease_until_ms: int
    reader: ContractReader | None = None
    """At the entry after `pending`; `None` until the run's row was read."""
    pending: ContractEvent | None = None
    """The event that was tried and is to be tried again."""
    tags: Mapping[str, str] = NO_TAGS
    is_expected: bool = False
    """Whether the row is that of a run which is being created, as far as this relay knows."""
    is_busy: bool = False
    has_grown: bool = True
    """Whether there may be entries after those that were read."""
    tries: int = 0
    """How often the bus has refused the next event."""
    failures: int = 0
    """How often the next event was not published, whatever the reason."""
    published_before: int = 0
    """How many events the bus had taken when the next event failed last."""
    retry_at_ms: int = 0

    @classmethod
    def of(cls, claimed: Publication, lease_until_ms: int, known: "Track | None" = None) -> "Track":
        """The track of a claim: the known one if no other relay has published more of it since its lease ended."""
        key, seq, end_seq = claimed
        if known is not None and known.seq >= seq:
            known.lease_until_ms, known.is_expected = lease_until_ms, False
            known.has_grown = True
            return known
        return cls(key, seq, end_seq, lease_until_ms)

    @property
    def read_from(self) -> int:
        """The next entry to read."""
        return 0 if self.reader is None else self.reader.seq

    @property
    def is_active(self) -> bool:
        """Whether it has something to publish, as far as is known."""
        return self.has_grown or self.is_busy or self.pending is not None

    def is_ready(self, now_ms: int) -> bool:
        """Whether it may be published now."""
        return not self.is_busy and self.retry_at_ms <= now_ms

    def passed(self) -> None:
        """The next event is published, or a dead letter."""
        self.pending = None
        self.tries = self.failures = 0


def reason_of(error: Exception) -> str:
    """Why an event was not published, for people."""
    text = error.what if isinstance(error, PerdureError) else f"{type(error).__name__}: {error}"
    return text.replace("\0", "")[:500]


async def wait_for_one(tasks: Collection[asyncio.Task[None]]) -> None:
    """Wait until one of these tasks ends, if there are any."""
    if tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
