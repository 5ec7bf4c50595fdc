"""The runs that hold data of a run: those that it gave it to, and those that it got it from."""

from collections.abc import Mapping
from typing import NamedTuple

from perdure.core.errors import InputError, UnknownRun
from perdure.core.ids import RunId
from perdure.store.retention_table import Kin, RetentionTable


class EraseOrder(NamedTuple):
    """A run with all runs that it gave data to, those first. `archived` are in the archive."""

    run_ids: list[RunId]
    archived: frozenset[RunId]


async def family_of(table: RetentionTable, run_id: RunId) -> EraseOrder:
    """The runs to erase with a run: its chain, their children and forks, and so on; receivers of data first.

    Raises `InputError` if one of them is open, or if the run got its data from a run that keeps it.
    """
    known = await _relatives(table, run_id)
    if run_id not in known:
        raise UnknownRun(f"there is no run {run_id!r}", "check the id and the store")
    for kin in (known[run_id], *known.values()):
        if kin.is_open:
            whose = "" if kin.run_id == run_id else f", which may have data of run {run_id!r},"
            raise InputError(
                f"run {kin.run_id!r}{whose} is open",
                "cancel it, or wait for its end, and erase then",
            )
    await _require_no_source(table, run_id, known)
    ordered: dict[RunId, None] = {}
    _add(known[run_id].origin, known, ordered)
    for member in known:
        _add(member, known, ordered)
    archived = frozenset(kin.run_id for kin in known.values() if kin.is_archived)
    return EraseOrder(list(ordered), archived)


async def _relatives(table: RetentionTable, run_id: RunId) -> dict[RunId, Kin]:
    """The run, its chain, and all that got data of them."""
    known: dict[RunId, Kin] = {}
    given = {kin.run_id: kin for kin in await table.kin([run_id])}
    if run_id not in given:
        return {}
    wanted = [run_id, given[run_id].origin]
    while wanted:
        found = {kin.run_id: kin for kin in await table.kin(wanted)}
        new = [each for each in found if each not in known]
        known |= {each: found[each] for each in new}
        chains = [known[each].origin for each in new]
        wanted = [*new, *(each for each in chains if each not in known)]
    return known


async def _require_no_source(
    table: RetentionTable, run_id: RunId, known: Mapping[RunId, Kin]
) -> None:
    """Raise if a parent or the source of a fork outside of the family still has data."""
    named = (source for kin in known.values() for source in (kin.parent, kin.forked_from))
    sources = sorted({each for each in named if each is not None and each not in known})
    stored = {kin.run_id for kin in await table.kin(sources)} & set(sources)
    kept = await table.get(sorted(stored))
    for each in sorted(stored):
        if each not in kept or kept[each].receipt is None:
            raise InputError(
                f"run {run_id!r} got its data from run {each!r}, which keeps it",
                f"erase run {each!r}: that erases this one too",
            )


def _add(run_id: RunId, known: Mapping[RunId, Kin], ordered: dict[RunId, None]) -> None:
    """Add a run after all children and forks of it. Iterative: families may be deep."""
    waiting = [(run_id, False)]
    while waiting:
        each, are_added = waiting.pop()
        if each in ordered or each not in known:
            continue
        if are_added:
            ordered[each] = None
            continue
        waiting.append((each, True))
        waiting += [
            (kin.run_id, False)
            for kin in known.values()
            if each in (kin.parent, kin.forked_from) and kin.run_id not in ordered
        ]
