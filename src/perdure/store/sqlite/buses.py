"""Event buses in a SQLite store, on the store's connections."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from perdure.core.ids import RunId
from perdure.store.bus_table import (
    MOST_COUNTED,
    AheadPage,
    BusCounts,
    DeadLetter,
    Publication,
    PublicationKey,
    RelayProgress,
    ReplayedPart,
    StoredBus,
    after_values,
    ahead_page,
    bus_from,
    letter_from,
    programs_text,
    publication_from,
    replayable_from,
    tags_from,
)
from perdure.store.rows.values import require_storable_values
from perdure.store.sqlite.connections.heartbeat_connection import json_list
from perdure.store.sqlite.connections.opening import retry_while_locked
from perdure.store.sqlite.operations import RunJob
from perdure.store.sqlite.writing import in_transaction
from perdure.store.statements import statements

_SQL = statements("sqlite_buses")

_Write = tuple[str, dict[str, Any]]


class SqliteBuses:
    """`change` runs a job on the writing connection, `read` on a reading one."""

    def __init__(self, change: RunJob, read: RunJob) -> None:
        self._change = change
        self._read = read

    async def register(self, name: str, programs: Sequence[str] | None, now_ms: int) -> None:
        values = {"name": name, "programs": programs_text(programs), "now_ms": now_ms}
        await self._write([("register_bus", values)])

    async def all(self) -> list[StoredBus]:
        return [bus_from(row) for row in await self._rows("select_buses")]

    async def note(self, name: str, down_since_ms: int | None, error: str | None) -> None:
        values = {"name": name, "down_since_ms": down_since_ms, "error": error}
        await self._write([("note_bus", values)])

    async def remove(self, name: str) -> None:
        names = "remove_bus", "remove_publications", "remove_dead_letters"
        await self._write([(statement, {"name": name}) for statement in names])

    async def enrol_open(self, bus: str, run_ids: Sequence[RunId]) -> None:
        await self._write([("enrol_open", {"bus": bus, "ids": json_list(run_ids)})])

    async def ahead(
        self, bus: str, holder: str, after: PublicationKey | None, now_ms: int, limit: int
    ) -> AheadPage:
        run_id, replay = after or ("", "")
        where = {"bus": bus, "holder": holder, "run_id": run_id, "replay": replay}
        rows = await self._rows("select_ahead", **where, now_ms=now_ms, limit=limit)
        return ahead_page(rows, limit)

    async def claim(
        self,
        bus: str,
        holder: str,
        keys: Sequence[PublicationKey],
        now_ms: int,
        lease_until_ms: int,
    ) -> list[Publication]:
        values = {"bus": bus, "holder": holder, "now_ms": now_ms, "keys": json_list(keys)}
        values["lease_until_ms"] = lease_until_ms
        rows = await self._write([("claim_publications", values)])
        return sorted(map(publication_from, rows))

    async def advance(
        self, bus: str, holder: str, progress: RelayProgress, lease_until_ms: int
    ) -> None:
        writes: list[_Write] = [
            ("add_dead_letter", msgspec.structs.asdict(letter)) for letter in progress.dead_letters
        ]
        of_bus = {"bus": bus, "holder": holder, "lease_until_ms": lease_until_ms}
        for (run_id, replay), seq in progress.marks.items():
            where = {**of_bus, "run_id": run_id, "replay": replay, "seq": seq}
            writes.append(("advance_publication", where))
        for run_id, replay in progress.ended:
            where = {"bus": bus, "run_id": run_id, "replay": replay}
            writes.append(("end_publication", where))
        await self._write(writes)

    async def counts(self, bus: str) -> BusCounts:
        ((behind, oldest_ms),) = await self._rows("count_behind", bus=bus, most=MOST_COUNTED)
        ((replays,),) = await self._rows("count_replays", bus=bus, most=MOST_COUNTED)
        ((letters,),) = await self._rows("count_dead_letters", bus=bus, most=MOST_COUNTED)
        return BusCounts(behind, oldest_ms, replays, letters)

    async def replayable(
        self,
        after: RunId | None,
        since_ms: int,
        until_ms: int,
        programs: Sequence[str] | None,
        limit: int,
    ) -> list[tuple[RunId, ReplayedPart | None]]:
        span = {"since_ms": since_ms, "until_ms": until_ms, "programs": programs_text(programs)}
        rows = await self._rows("select_replayable", after=after or "", **span, limit=limit)
        return list(map(replayable_from, rows))

    async def replay(
        self,
        bus: str,
        replay: str,
        parts: Sequence[ReplayedPart],
        dropped: Sequence[DeadLetter] = (),
    ) -> None:
        writes: list[_Write] = [
            (
                "add_replay",
                {"bus": bus, "run_id": run_id, "replay": replay, "seq": first, "end_seq": end},
            )
            for run_id, first, end in parts
        ]
        await self._write([*writes, *map(_dropping, dropped)])

    async def dead_letters(
        self, bus: str | None, run_id: RunId | None, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        after_bus, after_run, after_seq = after_values(after)
        key = {"after_bus": after_bus, "after_run": after_run, "after_seq": after_seq}
        rows = await self._rows("select_dead_letters", bus=bus, run_id=run_id, **key, limit=limit)
        return list(map(letter_from, rows))

    async def drop(self, letters: Sequence[DeadLetter]) -> None:
        await self._write([_dropping(letter) for letter in letters])

    async def tags(self, run_ids: Sequence[RunId]) -> dict[RunId, dict[str, str]]:
        return tags_from(await self._rows("select_tags", ids=json_list(run_ids)))

    async def _rows(self, statement: str, /, **values: Any) -> list[Any]:
        require_storable_values(values.values())

        def job(connection: apsw.Connection) -> list[Any]:
            return retry_while_locked(
                lambda: connection.execute(_SQL[statement], values).fetchall()
            )

        return await self._read(job)

    async def _write(self, writes: Sequence[_Write]) -> list[Any]:
        """Commits: all of these statements. Returns the rows that they return."""
        for _, values in writes:
            require_storable_values(values.values())

        def all_of_them(connection: apsw.Connection) -> list[Any]:
            return [
                row for name, values in writes for row in connection.execute(_SQL[name], values)
            ]

        def job(connection: apsw.Connection) -> list[Any]:
            rows: list[Any] = in_transaction(connection, lambda: all_of_them(connection))
            return rows

        return await self._change(job)


def _dropping(letter: DeadLetter) -> _Write:
    return "drop_dead_letter", {"bus": letter.bus, "run_id": letter.run_id, "seq": letter.seq}
