"""Parks runs that this host can't advance, with the reason, and keeps the outcomes of their attempts."""

import logging
from collections.abc import Callable

from perdure.core.errors import (
    BundleRefused,
    CommitRejected,
    CorruptJournal,
    InputError,
    PerdureError,
    StaleFence,
    StoreDamaged,
    UnknownName,
)
from perdure.core.ids import RunId
from perdure.engine.programs.parked import ParkedRun
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.host.context import HostContext
from perdure.host.logs import run_log
from perdure.host.runs.logs import note_parked, note_unparked, note_unwritable
from perdure.host.tasks.attempt import Attempt
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import Run

FinishedAttempt = tuple[Attempt, AttemptOutcome]
"""An attempt of this host and its outcome, which is nowhere else."""

LONGEST_REASON = 4000
"""Characters of why a run is parked: what it raised may be any text."""


class Parking:
    """Parks the runs of one host.

    A run that can't be replayed is tried again at each load. A run whose next decision can't be written is
    *unwritable*: trying again would fail again, so the host leaves it alone until it is restarted.
    """

    def __init__(
        self,
        context: HostContext,
        on_lacking: Callable[[str], None],
    ) -> None:
        """`on_lacking` gets each program of which a run needs a definition that this process lacks."""
        self._context = context
        self._store = context.store
        self._on_lacking = on_lacking
        self._unwritable: dict[RunId, int] = {}
        """Unwritable runs, and the epoch at which each was parked."""
        self._unparkable: set[RunId] = set()
        """Runs whose rows are so damaged that not even a reason can be written to them."""

    def leaves_alone(self, run: Run) -> bool:
        """Whether the run is unwritable or damaged, and unchanged since it was parked."""
        if run.run_id in self._unparkable:
            return True
        is_same = run.parked is not None and self._unwritable.get(run.run_id) == run.epoch
        if not is_same:
            self._unwritable.pop(run.run_id, None)
        return is_same

    async def park(self, run: Run, reason: str | None, bundle: Bundle | None = None) -> None:
        """Commits: why the run is not advanced, or that it is again; and what is in the bundle."""
        if reason is not None:
            reason = _plain(reason)
        if run.parked == reason and bundle is None:
            return
        if reason is not None:
            # What is unknown here may be known to another process.
            level = logging.WARNING if reason.startswith(UnknownName.code) else logging.ERROR
            note_parked(run.run_id, run.program, reason, level)
        bundle = bundle or Bundle()
        bundle.park(Fence(run.run_id, run.epoch), reason)
        await self._store.commit(bundle)
        self._context.watchers.grown(run.run_id)
        if reason is None:
            note_unparked(run.run_id, run.program)
        else:
            # Wake those who wait for its result: it may never come.
            self._context.watchers.ended(run.run_id, None)

    async def give_up(self, run: Run, problem: PerdureError, bundle: Bundle | None = None) -> None:
        """Commits: this host can't advance the run, and why; and what is in the bundle.

        If this host lacks a definition, another may have it: this host releases the run and does not claim it again.
        """
        epoch: object = run.epoch
        if not isinstance(epoch, int):
            # Without an epoch there is no fence, and so no way to write.
            self._leave(run.run_id, problem)
            return
        try:
            await self.park(run, f"{problem.code}: {problem}", bundle)
        except (CommitRejected, InputError, StoreDamaged) as refusal:
            if run.damage is None and not isinstance(refusal, StoreDamaged):
                raise
            self._leave(run.run_id, refusal)
            return
        if isinstance(problem, UnknownName):
            self._on_lacking(run.program)
            await self._store.release_run(Fence(run.run_id, run.epoch))
            self._context.listener.runs_released()

    async def find_damaged(self, run_id: RunId, error: Exception) -> Run | None:
        """The row of a run whose rows can't all be read, if at least that can; `None` if there is none to be parked."""
        if run_id in self._unparkable:
            return None
        try:
            return await self._store.run(run_id)
        except StoreDamaged:
            self._leave(run_id, error)
            return None

    def _leave(self, run_id: RunId, error: Exception) -> None:
        self._unparkable.add(run_id)
        run_log.error(
            "run %s is damaged and can't even be parked; it is left alone: %s", run_id, error
        )

    async def park_unwritable(
        self, run_id: RunId, problem: Exception, finished: FinishedAttempt | None = None
    ) -> None:
        """Commits: that the run's decision can't be written, and the outcome of the attempt that led to it.

        The run waits for other code, or for a cancel. Its other attempts are in doubt: a second outcome can't be
        written before the program has reacted to the first.
        """
        while (run := await self._store.run(run_id)) is not None:
            if run.owner != self._context.host_id or run.is_over:
                return
            kept = None if finished is None else await self.completion(*finished)
            try:
                if isinstance(problem, UnknownName):
                    # The program is not wrong: this process lacks something.
                    await self.give_up(run, problem, kept)
                    return
                note_unwritable(run_id, run.program, problem)
                await self.park(run, _unwritable(run, problem), kept)
            except StaleFence:
                # A commit under way came first, or another host took the run over.
                continue
            except BundleRefused:
                if kept is None:
                    raise
                finished = None
                continue
            self._unwritable[run_id] = run.epoch
            return

    async def completion(self, attempt: Attempt, outcome: AttemptOutcome) -> Bundle | None:
        """A bundle with the outcome alone, without the program's reaction. `None` if the run no longer waits for it."""
        info = attempt.info
        for run, entries in await self._store.load([info.run_id]):
            if run.owner == self._context.host_id and not run.is_over:
                parked = ParkedRun(run, entries)
                bundle = parked.complete(info.step, info.attempt, outcome, self._context.sources)
                if bundle is not None:
                    for value in attempt.unconfirmed(run.epoch):
                        bundle.publish(info.run_id, *value, again=True)
                return bundle
        return None


def require_undamaged(run: Run) -> None:
    """Refuse a row that no run can have."""
    if run.damage is not None:
        raise CorruptJournal(
            f"the row of run {run.run_id!r} is damaged: {run.damage}",
            "see the audit, restore the row from a backup, and start the engine again",
        )


def _unwritable(run: Run, problem: Exception) -> str:
    return (
        f"unwritable: what {run.program!r} does after entry {run.seq - 1} can't be written "
        f"({type(problem).__name__}: {problem}): fix the program and start the engine again; or cancel the run"
    )


def _plain(reason: str) -> str:
    """The text as a store can keep it."""
    plain = reason.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return plain if len(plain) <= LONGEST_REASON else f"{plain[:LONGEST_REASON]}..."
