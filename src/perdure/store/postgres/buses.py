"""Event buses in a Postgres store."""

from collections.abc import Sequence
from typing import Any

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
from perdure.store.postgres.operations import UseConnection
from perdure.store.postgres.writing import Connection, transaction
from perdure.store.rows.values import require_storable_values
from perdure.store.statements import statements

_SQL = statements("postgres_buses")

_Write = tuple[str, tuple[Any, ...]]


class PostgresBuses:
    """A write that is repeated after a lost connection changes nothing more."""

    def __init__(self, use: UseConnection) -> None:
        self._use = use

    async def register(self, name: str, programs: Sequence[str] | None, now_ms: int) -> None:
        await self._rows("register_bus", name, programs_text(programs), now_ms)

    async def all(self) -> list[StoredBus]:
        return [bus_from(row) for row in await self._rows("select_buses")]

    async def note(self, name: str, down_since_ms: int | None, error: str | None) -> None:
        await self._rows("note_bus", name, down_since_ms, error)

    async def remove(self, name: str) -> None:
        names = "remove_bus", "remove_publications", "remove_dead_letters"
        await self._write([(statement, (name,)) for statement in names])

    async def enrol_open(self, bus: str, run_ids: Sequence[RunId]) -> None:
        await self._rows("enrol_open", bus, list(run_ids))

    async def ahead(
        self, bus: str, holder: str, after: PublicationKey | None, now_ms: int, limit: int
    ) -> AheadPage:
        rows = await self._rows("select_ahead", bus, holder, now_ms, *(after or ("", "")), limit)
        return ahead_page(rows, limit)

    async def claim(
        self,
        bus: str,
        holder: str,
        keys: Sequence[PublicationKey],
        now_ms: int,
        lease_until_ms: int,
    ) -> list[Publication]:
        lease = bus, holder, lease_until_ms, now_ms
        rows = await self._rows("claim_publications", *lease, *_columns(keys, 2))
        return sorted(map(publication_from, rows))

    async def advance(
        self, bus: str, holder: str, progress: RelayProgress, lease_until_ms: int
    ) -> None:
        letters = [msgspec.structs.astuple(letter) for letter in progress.dead_letters]
        marks = [(*key, seq) for key, seq in progress.marks.items()]
        writes: list[_Write] = []
        if letters:
            writes.append(("add_dead_letters", _columns(letters, 7)))
        if marks:
            held = bus, holder, lease_until_ms
            writes.append(("advance_publications", (*held, *_columns(marks, 3))))
        if progress.ended:
            writes.append(("end_publications", (bus, *_columns(progress.ended, 2))))
        await self._write(writes)

    async def counts(self, bus: str) -> BusCounts:
        ((behind, oldest_ms),) = await self._rows("count_behind", bus, MOST_COUNTED)
        ((replays,),) = await self._rows("count_replays", bus, MOST_COUNTED)
        ((letters,),) = await self._rows("count_dead_letters", bus, MOST_COUNTED)
        return BusCounts(behind, oldest_ms, replays, letters)

    async def replayable(
        self,
        after: RunId | None,
        since_ms: int,
        until_ms: int,
        programs: Sequence[str] | None,
        limit: int,
    ) -> list[tuple[RunId, ReplayedPart | None]]:
        named = None if programs is None else list(programs)
        where = after or "", since_ms, until_ms, named, limit
        return list(map(replayable_from, await self._rows("select_replayable", *where)))

    async def replay(
        self,
        bus: str,
        replay: str,
        parts: Sequence[ReplayedPart],
        dropped: Sequence[DeadLetter] = (),
    ) -> None:
        adding: _Write = "add_replays", (bus, replay, *_columns(parts, 3))
        await self._write([adding, *map(_dropping, dropped)])

    async def dead_letters(
        self, bus: str | None, run_id: RunId | None, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        where = bus, run_id, *after_values(after), limit
        return list(map(letter_from, await self._rows("select_dead_letters", *where)))

    async def drop(self, letters: Sequence[DeadLetter]) -> None:
        await self._write([_dropping(letter) for letter in letters])

    async def tags(self, run_ids: Sequence[RunId]) -> dict[RunId, dict[str, str]]:
        return tags_from(await self._rows("select_tags", list(run_ids)))

    async def _rows(self, name: str, *values: Any) -> list[Any]:
        require_storable_values(values)
        return await self._use(lambda connection: connection.fetch(_SQL[name], *values))

    async def _write(self, writes: Sequence[_Write]) -> None:
        """Commits: all of these statements."""
        for _, values in writes:
            require_storable_values(values)

        async def job(connection: Connection) -> None:
            async with transaction(connection):
                for name, values in writes:
                    await connection.execute(_SQL[name], *values)

        if writes:
            await self._use(job)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> tuple[list[Any], ...]:
    return tuple([row[at] for row in rows] for at in range(width))


def _dropping(letter: DeadLetter) -> _Write:
    return "drop_dead_letter", (letter.bus, letter.run_id, letter.seq)
