"""The part of a store for people who operate it: how much it holds, its hosts and queues, one run's books."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from perdure.core.books import Books
from perdure.core.ids import HostId, RunId
from perdure.core.journal.entry import Entry
from perdure.core.messages import LONG_AGO_MS, Message
from perdure.store.rows.lists import (
    ErrorGroupRow,
    ErrorGroupRows,
    ListedRun,
    PersonalWait,
    listed_from,
    tags_by_run,
)
from perdure.store.rows.runs import entry_from, message_from

MOST_GROUPED: Final = 10_000
"""Failed runs, and parked steps, that are grouped by their errors."""


_QUEUES = msgspec.json.Decoder(tuple[str, ...])


class HostRow(msgspec.Struct, frozen=True):
    """A host as stored. One without a row (`beat` is `None`) still holds runs or work, and is dead."""

    host: HostId
    beat: int | None
    stale_after_ms: int
    queues: tuple[str, ...]
    started_at_ms: int | None
    open_runs: int
    claimed: int


class QueueRow(msgspec.Struct, frozen=True):
    """A queue: tasks that are due, tasks that are due later, tasks that hosts have claimed.

    `oldest_ms` is since when the oldest due task is due; `None` if none is.
    """

    queue: str
    due: int
    later: int
    claimed: int
    oldest_ms: int | None
    hosts: int
    """How many hosts with a row serve it, dead ones included."""


class OperatorTables(Protocol):
    """The interface that both databases implement. All are reads."""

    async def count_all_runs(self) -> int:
        """The number of runs, open and closed. Reads the whole index of runs."""
        ...

    async def count_open_runs(self) -> int:
        """The number of open runs."""
        ...

    async def locked_ms(self) -> int | None:
        """How long writers have waited in this call for a lock that another program holds; `None` if they need not."""
        ...

    async def books_of(self, run_id: RunId) -> Books:
        """Both books of one run, from one snapshot. Books without a row and without entries: there is no such run."""
        ...

    async def decisions(self, run_id: RunId) -> list[Entry]:
        """The entries of one run that record decisions on operators' acts. Reads its whole journal."""
        ...

    async def acts_set_aside(self, run_id: RunId) -> list[tuple[Message, str]]:
        """The acts that one run has taken in without an entry, each with its verdict."""
        ...

    async def host_rows(self) -> list[HostRow]:
        """Hosts that have a row, own open runs, or have claimed work, in the order of ids. One statement."""
        ...

    async def queue_rows(self, now_ms: int) -> list[QueueRow]:
        """The queues that have tasks or are served, in the order of names. One statement."""
        ...

    async def listed_run(self, run_id: RunId) -> ListedRun | None:
        """One run as lists show it, with its tags."""
        ...

    async def error_groups(
        self, scope: str | None, program: str | None, limit: int
    ) -> ErrorGroupRows:
        """The errors of the `MOST_GROUPED` runs that failed last, and of parked steps, the most frequent first."""
        ...

    async def waits_for_people(self, run_ids: Sequence[RunId]) -> list[PersonalWait]:
        """The signals that these open runs wait for, and their parked steps, the newest runs first. One statement."""
        ...


class OperatorQueries(ABC):
    """The reads, over one method that executes a named statement."""

    async def count_all_runs(self) -> int:
        ((count,),) = await self._fetch_operator_rows("count_all_runs")
        return int(count)

    async def count_open_runs(self) -> int:
        ((count,),) = await self._fetch_operator_rows("count_open_runs")
        return int(count)

    async def decisions(self, run_id: RunId) -> list[Entry]:
        rows = await self._fetch_operator_rows("select_decisions", run_id=run_id)
        return [entry_from(row) for row in rows]

    async def acts_set_aside(self, run_id: RunId) -> list[tuple[Message, str]]:
        rows = await self._fetch_operator_rows("select_acts_set_aside", run_id=run_id)
        return [(message_from((*row,)[:7]), row[7] or "") for row in rows]

    async def host_rows(self) -> list[HostRow]:
        rows = await self._fetch_operator_rows("select_hosts")
        return [
            HostRow(
                HostId(host), beat, stale_ms or 0, _QUEUES.decode(queues or "[]"), started, *counts
            )
            for host, beat, stale_ms, queues, started, *counts in rows
        ]

    async def queue_rows(self, now_ms: int) -> list[QueueRow]:
        served: dict[str, int] = {}
        for host in await self.host_rows():
            for queue in host.queues:
                served[queue] = served.get(queue, 0) + 1
        rows = await self._fetch_operator_rows(
            "select_queues", now_ms=now_ms, long_ago_ms=LONG_AGO_MS
        )
        found = {
            queue: QueueRow(queue, due, later, claimed, oldest_ms, served.get(queue, 0))
            for queue, due, later, claimed, oldest_ms in rows
        }
        for queue, hosts in served.items():
            found.setdefault(queue, QueueRow(queue, 0, 0, 0, None, hosts))
        return [found[queue] for queue in sorted(found)]

    async def listed_run(self, run_id: RunId) -> ListedRun | None:
        rows = await self._fetch_operator_rows("select_listed_run", run_id=run_id)
        tags = await self._fetch_operator_rows("select_tags_of", run_id=run_id)
        return listed_from(rows[0], tags_by_run(tags).get(run_id, {})) if rows else None

    async def error_groups(
        self, scope: str | None, program: str | None, limit: int
    ) -> ErrorGroupRows:
        values = {"scope": scope, "program": program, "most": MOST_GROUPED, "limit": limit}
        rows = await self._fetch_operator_rows("select_error_groups", **values)
        examined = max((max(row[5], row[6]) for row in rows), default=0)
        groups = [ErrorGroupRow(row[0], int(row[1]), int(row[2]), row[3], row[4]) for row in rows]
        return ErrorGroupRows(groups, examined < MOST_GROUPED and len(groups) < limit)

    async def waits_for_people(self, run_ids: Sequence[RunId]) -> list[PersonalWait]:
        ids = msgspec.json.encode(run_ids).decode()
        rows = await self._fetch_operator_rows("select_for_people", run_ids=ids)
        return [PersonalWait(*row) for row in rows]

    @abstractmethod
    async def _fetch_operator_rows(self, name: str, /, **values: Any) -> list[Any]: ...
