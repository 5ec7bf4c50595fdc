"""Deletes artifacts that have expired, and objects that no outcome refers to."""

from collections.abc import AsyncIterator, Collection

import msgspec

from perdure.core.artifacts import (
    SCHEME,
    SWEPT,
    ArtifactName,
    RunFacts,
    StoredArtifact,
    parse_name,
    to_delete,
)
from perdure.core.errors import InputError, InvalidId
from perdure.core.ids import RunId
from perdure.core.journal.events import ExecutionStarted, InvokeCompleted, InvokeStarted
from perdure.core.replay.identity import child_run_id, parse_parent
from perdure.core.runs.listing import MAX_LIMIT, RunFilter
from perdure.engine.sources import Sources
from perdure.host.artifacts.artifacts import Artifacts
from perdure.store.rows.records import Run
from perdure.store.store import Store

ENTRIES_PER_READ = 1000


class Swept(msgspec.Struct, frozen=True):
    """What a sweep did: the objects that it found, and those of them that it deleted."""

    found: int
    deleted: int


async def sweep(artifacts: Artifacts, store: Store, sources: Sources) -> Swept:
    """Delete what expired and orphans. Any number of hosts may do this at the same time.

    Reads the store of runs after the listing. A run that is over then stays over, and no name is ever used again: so
    what was found cannot become referenced by its run later.
    """
    now_ms = sources.now_ms()
    found = deleted = 0
    async for run_id, objects in _by_run(artifacts):
        found += len(objects)
        is_marked = any(parse_name(each.name).is_mark for each in objects)
        facts = await _facts_of(store, run_id, objects, is_marked, now_ms)
        names = to_delete(objects, facts, now_ms, artifacts.grace_ms)
        for name in names:
            await artifacts.store.delete(name)
        deleted += len(names)
        if facts is not None and facts.referenced is not None and not facts.is_in_use:
            left = [each for each in objects if each.name not in names]
            if left and all(_is_settled(each, facts.referenced) for each in left):
                await _mark(artifacts, run_id, sources.entropy(16).hex())
    return Swept(found, deleted)


def _is_settled(each: StoredArtifact, referenced: Collection[str]) -> bool:
    return each.name in referenced or parse_name(each.name).is_payload


async def erase_artifacts(artifacts: Artifacts, prefix: str) -> int:
    """Delete all objects whose names begin with the prefix. Returns how many."""
    count = 0
    async for each in artifacts.store.list(prefix):
        await artifacts.store.delete(each.name)
        count += 1
    return count


async def _by_run(artifacts: Artifacts) -> AsyncIterator[tuple[RunId, list[StoredArtifact]]]:
    """The objects of each run. What Perdure did not name is left alone."""
    run_id: RunId | None = None
    objects: list[StoredArtifact] = []
    async for each in artifacts.store.list(""):
        try:
            name = parse_name(each.name)
        except InvalidId:
            continue
        if name.run_id != run_id:
            if run_id is not None:
                yield run_id, objects
            run_id, objects = name.run_id, []
        objects.append(each)
    if run_id is not None:
        yield run_id, objects


async def _facts_of(
    store: Store, run_id: RunId, objects: list[StoredArtifact], is_marked: bool, now_ms: int
) -> RunFacts | None:
    run = await store.run(run_id)
    if run is None:
        kept = (await store.retention.get([run_id])).get(run_id)
        # An archived run has its artifacts until it is erased or purged.
        return None if kept is None or kept.archive is None else RunFacts(False, None)
    if not run.is_over:
        return RunFacts(True, None)
    is_any_expired = any(0 < parse_name(each.name).expires_at_ms <= now_ms for each in objects)
    if is_marked and not is_any_expired:
        return RunFacts(False, None)
    journal = await _read_journal(store, run_id)
    is_in_use = await _is_family_open(store, run, journal.parent)
    return RunFacts(is_in_use, journal.referenced)


class _JournalFacts(msgspec.Struct):
    """What a journal says of artifacts: their names, the address of the parent, and the runs that it may have begun."""

    referenced: set[str]
    parent: str | None
    children: set[RunId]


async def _read_journal(store: Store, run_id: RunId) -> _JournalFacts:
    facts = _JournalFacts(set(), None, set())
    first = 0
    while entries := await store.entries(run_id, first, first + ENTRIES_PER_READ):
        for entry in entries:
            event = entry.event
            if isinstance(event, InvokeCompleted):
                facts.referenced.update(each.uri.removeprefix(SCHEME) for each in event.artifacts)
            elif isinstance(event, ExecutionStarted):
                facts.parent = event.parent_id
            elif isinstance(event, InvokeStarted):
                # The journal does not say which steps are child runs; the id of one names no other run.
                facts.children.add(child_run_id(run_id, event.promise_id, event.attempt))
        first += len(entries)
    return facts


async def require_not_needed(store: Store, run: Run) -> None:
    """Raise if an open run may need an artifact of this one: itself, its parent, a child, its successor, a fork."""
    if not run.is_over:
        raise InputError(f"run {run.run_id!r} is open", "erase its artifacts when it is over")
    journal = await _read_journal(store, run.run_id)
    related = await store.runs(sorted(journal.children))
    if any(not each.is_over for each in related) or await _is_family_open(
        store, run, journal.parent
    ):
        raise InputError(
            f"a run that may need the artifacts of run {run.run_id!r} is open: its parent, child, successor or fork",
            "erase them when that is over",
        )


async def _is_family_open(store: Store, run: Run, parent: str | None) -> bool:
    """Whether a run is open that may have references of this one: its parent, one that continues it, or a fork."""
    end = await store.chain_end(run.origin)
    if (end is not None and not end.is_over) or await _has_open_fork(store, run.run_id):
        return True
    while parent is not None:
        above = await store.run(parse_parent(parent)[0])
        if above is None:
            return False
        if not above.is_over:
            return True
        parent = (await _read_journal(store, above.run_id)).parent
    return False


async def _has_open_fork(store: Store, run_id: RunId) -> bool:
    """Whether a fork of the run is open, or a run that continues one, or a fork of a fork."""
    sources = [run_id]
    while sources:
        wanted, after = RunFilter(forked_from=sources.pop()), None
        while True:
            page = await store.list_runs(wanted, after, MAX_LIMIT)
            for fork in page.runs:
                end = await store.chain_end(fork.run_id)
                if end is not None and not end.is_over:
                    return True
                sources.append(fork.run_id)
            after = page.after
            if after is None:
                break
    return False


async def _mark(artifacts: Artifacts, run_id: RunId, nonce: str) -> None:
    """Note that the run has no orphans any more, so that later sweeps need not read its journal."""
    name = str(ArtifactName(run_id, 0, SWEPT + nonce))

    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    await artifacts.store.put(name, nothing(), 0)
