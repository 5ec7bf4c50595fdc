"""How planned parts reach the store: together, or one by one."""

from collections.abc import Sequence

from perdure.core.ids import Guid
from perdure.engine.runs.commit_mode import CommitMode
from perdure.engine.runs.warm import LoadedRun, create_run
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import NewRun
from perdure.store.store import Store
from tests.engine.legs import Part


async def commit_parts(
    store: Store,
    run: LoadedRun,
    guid: Guid,
    parts: Sequence[Part],
    sources: Sources,
    mode: CommitMode = CommitMode.FUSED,
) -> None:
    """Commit the parts of the transition that the message `guid` asked for."""
    bundle = Bundle()
    for part in parts:
        _add_part(bundle, run, guid, part, sources)
        if mode is CommitMode.STEPWISE:
            await store.commit(bundle)
            bundle = Bundle()
    if mode is CommitMode.FUSED:
        await store.commit(bundle)


async def commit_start(
    store: Store,
    new: NewRun,
    guid: Guid,
    parts: Sequence[Part],
    sources: Sources,
    mode: CommitMode = CommitMode.FUSED,
) -> LoadedRun:
    """Commit the birth of a run: its inception, and with it or after it the other parts."""
    inception, *rest = parts
    bundle = Bundle()
    run = create_run(bundle, new, inception.events, sources)
    if mode is CommitMode.STEPWISE:
        await store.commit(bundle)
        await commit_parts(store, run, guid, rest, sources, mode)
    else:
        for part in rest:
            _add_part(bundle, run, guid, part, sources)
        await store.commit(bundle)
    return run


def _add_part(bundle: Bundle, run: LoadedRun, guid: Guid, part: Part, sources: Sources) -> None:
    if part.events:
        bundle.append(run.fence, run.append(part.events, sources))
    for message in part.messages:
        bundle.enqueue(message)
    for work in part.work:
        bundle.put_work(run.fence, work)
    if part.acknowledges:
        bundle.acknowledge(run.fence, guid)
    if part.mark is not None:
        bundle.mark(run.fence, guid, part.mark, f"{part.mark} when it was delivered")
