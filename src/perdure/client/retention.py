"""Runs that leave the store, or lose their data: `engine.retention`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from perdure.authoring.tags import TagValue, tag_texts
from perdure.authoring.texts import require_user_text
from perdure.core.errors import ArtifactDamaged, ArtifactMissing, InputError
from perdure.core.ids import RunId, parse_run_id
from perdure.core.limits import MAX_KEY_LENGTH
from perdure.core.runs.erasing import RunErasure, read_erasure
from perdure.host.host import Host
from perdure.host.retention.acts import (
    By,
    archive_runs,
    end_unfinished,
    erase_runs,
    purge_runs,
    require_known_run,
)
from perdure.host.retention.passes import Retained, apply_policy
from perdure.host.retention.places import Places
from perdure.host.retention.policy import Retention
from perdure.host.runs.retaining import make_pass, places_of
from perdure.store.retention_table import RetainedRun

SCRUBBED_BYTES = 64 * 1024 * 1024
"""The largest SQLite file that an erasure rewrites: hosts wait for that, and must not be considered dead meanwhile."""


class Erasure(msgspec.Struct, frozen=True):
    """The receipts of an erasure, one for each run.

    `is_scrubbed`: the files of the store hold nothing that was deleted. Otherwise do that with `compact`.
    """

    runs: list[RunErasure]
    is_scrubbed: bool


class KeptRun(msgspec.Struct, frozen=True):
    """What the store knows of a run that was erased, archived or purged. `head` is that of its journal."""

    run_id: RunId
    program: str
    scope: str
    status: str
    entries: int
    head: str
    is_archived: bool
    receipt: RunErasure | None
    purged: datetime | None


class EngineRetention:
    """Archives, erases and purges runs that are over, and applies the engine's policies.

    Each act on a run is one commit, and may be repeated: that ends what a crash has interrupted.
    """

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host

    @property
    def policies(self) -> tuple[Retention, ...]:
        """The policies that the engine was given."""
        return tuple(self._host().context.services.retention)

    async def archive(self, run_ids: Iterable[str]) -> list[RunId]:
        """Move runs to the archive: then the store has the heads of their journals alone, and their tags.

        Returns those that were moved. Others are open, or a run that may need them is: parent, child, fork, or chain.
        """
        return await archive_runs(self._places(), _ids(run_ids))

    async def erase(
        self, run_id: str, *, by: str = "", reason: str = "", scrub: bool = True
    ) -> Erasure:
        """Erase the data of a run, and of all runs that got it: its chain, its child runs, its forks.

        Inputs, results, errors, signals, tags, start keys, reasons, published values, streams, messages, artifacts and
        the archive: what stays are hashes, which still verify. Raises `InputError` if one of these runs is open, or if
        another run gave the run its data. With `scrub`, the file of a SQLite store is rewritten, so that it holds
        nothing that was deleted; a file over 64 MB is left to `compact`.
        """
        places = self._places()
        erased = parse_run_id(run_id)
        await require_known_run(places, erased)
        for what, text in (("a name", by), ("a reason", reason)):
            require_user_text(what, text, MAX_KEY_LENGTH, least=0)
        receipts = await erase_runs(places, erased, By(by, reason))
        return Erasure(receipts, scrub and await self.scrub())

    async def scrub(self) -> bool:
        """Rewrite the file of a SQLite store of up to 64 MB, so that it holds nothing that was deleted.

        False if it is larger, if another program reads it, or if the store is on Postgres: use `compact`.
        """
        retention = self._places().store.retention
        size = await retention.size()
        return size is not None and size <= SCRUBBED_BYTES and await retention.compact(full=True)

    async def purge(self, run_ids: Iterable[str]) -> list[RunId]:
        """Remove runs from the store, and from the archive. A line of some 200 bytes with the head of each stays.

        Returns those that were removed; of the others `archive` says why they stay.
        """
        return await purge_runs(self._places(), _ids(run_ids))

    async def run(self) -> list[Retained]:
        """Apply the policies now, as hosts do in the background."""
        return await make_pass(self._host().context)

    async def preview(self) -> list[Retained]:
        """How many runs are due under each policy. Changes nothing."""
        places = self._places()
        return [await apply_policy(places, each, dry_run=True) for each in self.policies]

    async def get(self, run_id: str) -> KeptRun | None:
        """What the store knows of a run that was erased, archived or purged; `None` if it was not."""
        found = await self._places().store.retention.get([parse_run_id(run_id)])
        return _shown(next(iter(found.values()))) if found else None

    async def tagged(self, tags: Mapping[str, TagValue]) -> list[RunId]:
        """The archived runs that have all these tags. `Engine.runs` finds those in the store."""
        if not tags:
            raise InputError("no tags are given", "name at least one tag and its value")
        table = self._places().store.retention
        found = [set(await table.tagged(*each)) for each in tag_texts(tags).items()]
        return sorted(set.intersection(*found))

    async def verify_archive(self, run_ids: Sequence[str]) -> list[str]:
        """The problems of archived runs: missing objects, and journals that differ from the heads in the store."""
        places, problems = self._places(), []
        ids = _ids(run_ids)
        kept = await places.store.retention.get(ids)
        for run_id in ids:
            try:
                await places.read(kept[run_id])
            except KeyError:
                problems.append(f"run {run_id!r} is not in the archive")
            except (ArtifactDamaged, ArtifactMissing) as error:
                problems.append(str(error))
        return problems

    async def compact(self, *, full: bool = True) -> bool:
        """Give the free space of the store back. False if another program reads: then repeat it.

        With `full`, all that is left is rewritten, so that the files hold nothing that was deleted: on SQLite every
        other commit waits meanwhile, on Postgres those to the table that is being rewritten.
        """
        places = self._places()
        await end_unfinished(places)
        return await places.store.retention.compact(full=full)

    def _places(self) -> Places:
        return places_of(self._host().context)


def _ids(given: Iterable[str]) -> list[RunId]:
    if isinstance(given, str):
        raise InputError(f"the runs are {given!r:.80}", "pass a list of run ids")
    return [parse_run_id(each) for each in given]


def _shown(run: RetainedRun) -> KeptRun:
    purged_at_ms = run.purged_at_ms
    return KeptRun(
        *(run.run_id, run.program, run.scope, run.status, run.entries, run.head.hex()),
        is_archived=run.archive is not None,
        receipt=None if run.receipt is None else read_erasure(run.receipt),
        purged=None if purged_at_ms is None else datetime.fromtimestamp(purged_at_ms / 1000, UTC),
    )
