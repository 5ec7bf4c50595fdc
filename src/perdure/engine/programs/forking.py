"""Prepares a fork for the store: its run, its books, and the rows that its journal requires.

The registered program repeats the journal first. If it takes another way the fork is refused, and nothing is stored.
"""

from collections.abc import Sequence

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import ForkDiverged
from perdure.core.ids import RunId
from perdure.core.journal import events as e
from perdure.core.journal.entry import NONCE_BYTES
from perdure.core.journal.journal import Appended, Journal
from perdure.core.messages import Message
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rebuilding import divergence_error, program_for, rebuild
from perdure.engine.runs.record import Diverged
from perdure.engine.runs.required_rows import missing_rows, parked_steps
from perdure.engine.runs.warm import WarmRun
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import FIRST_EPOCH, Bundle
from perdure.store.rows.records import Enrolment, NewRun, Run, StoredRun


def fork_bundle(
    source: Run,
    run_id: RunId,
    events: Sequence[e.Event],
    codec: Codec,
    sources: Sources,
    programs: KnownPrograms,
    enrolments: tuple[Enrolment, ...] = (),
) -> Bundle:
    """Commits: the fork, without an owner, with all its entries and the rows that they require.

    Raises `ForkDiverged` if the registered program does not repeat the journal, and `UnknownName` if there is none.
    """
    now = sources.now_ms()
    appended = Journal(run_id).append(events, now, sources.entropy(NONCE_BYTES * len(events)))
    names = source.program, now, source.scope, source.version, source.digest
    bundle = Bundle()
    new = NewRun(run_id, *names, forked_from=source.run_id, enrolments=enrolments)
    fence = bundle.create_run(new, appended)
    row = _row(source, appended, now)
    warm = _replay(row, appended, codec, sources, programs)
    try:
        stored = StoredRun(row, list(appended.entries))
        for required in missing_rows(warm, stored):
            if isinstance(required, Message):
                bundle.enqueue(required)
            else:
                bundle.put_work(fence, required)
        warm.machine.reindex(bundle, fence, stored)
        for name, value in warm.machine.tags.items():
            bundle.tag(fence, name, value, now, scope=source.scope)
        for key in warm.machine.search_keys:
            bundle.hook(fence, *key)
        if warm.machine.is_paused:
            bundle.hold_work(fence, held=True)
        for step, parked in parked_steps(warm, appended.entries).items():
            bundle.park_step(fence, step, parked)
    finally:
        warm.machine.close()
    return bundle


def _row(source: Run, appended: Appended, now_ms: int) -> Run:
    return msgspec.structs.replace(
        source,
        run_id=appended.run_id,
        key=None,
        owner=None,
        epoch=FIRST_EPOCH,
        seq=appended.seq_after,
        head=appended.head,
        semaphore=appended.semaphore_after,
        status=appended.status,
        created_at_ms=now_ms,
        closed_at_ms=None,
        parked=None,
        chain=None,
        damage=None,
    )


def _replay(
    row: Run, appended: Appended, codec: Codec, sources: Sources, programs: KnownPrograms
) -> WarmRun:
    program = program_for(row, programs)
    try:
        return rebuild(row, appended.entries, program, codec, sources, programs)
    except Diverged as diverged:
        error = divergence_error(row, program, diverged.divergence, codec)
        raise ForkDiverged(
            f"the fork would not repeat the entries before its cut: {error.what}",
            "fork at an earlier step, or with the code that the run began with",
        ) from None
