"""Transactional steps, whose rows commit with their completion, and users' transactions outside a run.

A transactional attempt runs on a transaction. When it returns, its run takes in the completion, exclusively, and the
result commits in that transaction: the user's rows, the digits and the next intent are one commit. Otherwise nothing of
the attempt is written: it runs again, or its failure is journaled like any other.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.authoring.values.failures import encode_failure
from perdure.core.errors import (
    CommitRejected,
    InputError,
    StoreClosed,
    StoreError,
    TransactionError,
    TransactionInterrupted,
)
from perdure.core.ids import RunId
from perdure.engine.runs.attempt_outcome import AttemptOutcome
from perdure.engine.runs.warm import WarmRun
from perdure.host.backoff import Backoff
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.tasks.attempt import Attempt
from perdure.host.transactions.joining import OwnTransaction, UserCommittedTransaction, current
from perdure.store.commit.bundle import Bundle

log = logging.getLogger("perdure.host")


class Transactions:
    """All transactions of one host."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._limit_s = dispatcher.context.settings.transaction_timeout

    def require_none(self) -> None:
        """Refuse a transaction inside another: the inner one would stay committed if the outer one is rolled back."""
        if current(self._dispatcher) is not None:
            raise InputError(
                "a transaction inside another one of the same engine",
                "use the open one: pass its `tx` on; calls of the engine join it by themselves",
            )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[OwnTransaction]:
        """A transaction that is rolled back unless it is committed inside the block."""
        async with self._begin(OwnTransaction) as transaction:
            yield transaction

    @asynccontextmanager
    async def _begin(self, kind: type[OwnTransaction]) -> AsyncIterator[OwnTransaction]:
        async with self._dispatcher.store.transaction(self._limit_s) as rows:
            transaction = kind(self._dispatcher, rows)
            try:
                with transaction.current():
                    yield transaction
            finally:
                transaction.end()

    @asynccontextmanager
    async def join(self, connection: object) -> AsyncIterator[UserCommittedTransaction]:
        """Join the transaction that the user has begun on a connection of the user's own."""
        rows = await self._dispatcher.store.join(connection)
        transaction = UserCommittedTransaction(self._dispatcher, rows)
        async with rows.block():
            with transaction.current():
                yield transaction

    async def execute(self, attempt: Attempt) -> AttemptOutcome | None:
        """Execute an attempt and commit its completion. Returns a failure, which the caller reports like any other.

        The attempt begins only when the transaction has a connection. If the database interrupts the transaction,
        nothing was written, and the attempt runs again on a new one. After a lost connection that counts as another
        attempt and is journaled; after a deadlock it is the same attempt.
        """
        backoff = Backoff(self._dispatcher.context.outage)
        while True:
            attempt.renew()
            try:
                outcome = await self._try_attempt(attempt)
            except StoreClosed:
                raise
            except _ConnectionLostError as lost:
                log.warning("%s of run %s: %s", attempt.info.step, attempt.info.run_id, lost)
                attempt.is_reporting = True
                await self._dispatcher.advance(attempt.info.run_id, attempt.mark_cut_off)
                return None
            except (TransactionInterrupted, CommitRejected, StoreError) as error:
                if not await self._is_awaited(attempt):
                    return None
                backoff.blame(error, f"a transaction of run {attempt.info.run_id}")
            else:
                backoff.renew()
                return outcome
            await backoff.wait()

    async def _try_attempt(self, attempt: Attempt) -> AttemptOutcome | None:
        home = attempt.output
        try:
            async with self.begin() as transaction, self._hold(attempt, transaction) as hold:
                await transaction.rows.reserve()
                attempt.output = transaction
                if transaction.rows.is_exclusive:
                    # While the transaction is open, no other bundle commits: those of this run must be decided before.
                    transaction.rows.before_begin(hold.take)
                attempt.transaction = transaction.statements
                try:
                    return await self._execute_and_commit(transaction, hold, attempt)
                except TransactionInterrupted as error:
                    if transaction.rows.is_cut_off:
                        raise _ConnectionLostError(str(error)) from error
                    raise
        except (TransactionError, TimeoutError) as error:
            if isinstance(error, TransactionInterrupted):
                raise
            failure = encode_failure(self._dispatcher.codec, error)
            return AttemptOutcome(False, failure, attempt.task.retry.covers(error))
        finally:
            attempt.output = home

    async def _execute_and_commit(
        self, transaction: OwnTransaction, hold: "_Hold", attempt: Attempt
    ) -> AttemptOutcome | None:
        outcome = await self._dispatcher.executor.outcome(attempt)
        if outcome.ok or transaction.rows.is_interrupted:
            transaction.rows.require_open()
        if not outcome.ok:
            return outcome
        await transaction.rows.flush()
        attempt.is_reporting = True
        await self._complete(transaction, hold, attempt, outcome)
        return None

    @asynccontextmanager
    async def _hold(self, attempt: Attempt, transaction: OwnTransaction) -> AsyncIterator["_Hold"]:
        """A hold on the run. It is released when the block ends, or after the commit if one was begun."""
        hold = _Hold(self._dispatcher, attempt.info.run_id)
        try:
            yield hold
        finally:
            if transaction.deciding is None:
                hold.release()
            else:
                transaction.deciding.add_done_callback(hold.release)

    async def _complete(
        self, transaction: OwnTransaction, hold: "_Hold", attempt: Attempt, outcome: AttemptOutcome
    ) -> None:
        """Commits: the user's rows, the completion, and what the program decides on it; all or nothing."""
        run, info = await hold.take(), attempt.info
        is_here = run is not None and self._dispatcher.cache.get(info.run_id) is run
        if run is None or not is_here or not _awaits(run, attempt):
            raise TransactionInterrupted(
                f"run {info.run_id!r} does not wait for attempt {info.attempt} of {info.step}",
                "see whether the run still waits for this step",
            )
        try:
            batch = self._dispatcher.staging.turn(run, attempt.completing(outcome))
        except Exception as error:
            # The rows and the completion are valid; only the program's reaction can't be written.
            await transaction.commit_alone(
                await self._dispatcher.parking.completion(attempt, outcome)
            )
            await self._dispatcher.parking.park_unwritable(info.run_id, error)
        else:
            await transaction.commit(batch)

    async def _is_awaited(self, attempt: Attempt) -> bool:
        """Whether this host still owns the run, and the run waits for this attempt."""
        is_awaited = False

        def look(run: WarmRun) -> None:
            nonlocal is_awaited
            is_awaited = _awaits(run, attempt)

        return await self._dispatcher.advance(attempt.info.run_id, look) and is_awaited


def _awaits(run: WarmRun, attempt: Attempt) -> bool:
    promise = run.machine.promises.get(attempt.info.step)
    return promise is not None and promise.is_running and promise.attempt == attempt.info.attempt


class _ConnectionLostError(Exception):
    """The connection was lost after the attempt had begun."""


class _Hold:
    """Exclusive access to a run: from `take` to `release` the run takes in no other fact."""

    def __init__(self, dispatcher: Dispatcher, run_id: RunId) -> None:
        self._dispatcher = dispatcher
        self._run_id = run_id
        self._run: WarmRun | None = None

    async def take(self) -> WarmRun | None:
        """Returns the run once all its earlier bundles are decided. `None` if another host owns it."""
        while self._run is None:
            run = self._dispatcher.cache.get(self._run_id)
            if run is None:
                run = await self._dispatcher.loader.load(self._run_id)
            if run is None:
                return None
            if run.machine.is_busy:
                await self._dispatcher.transitions.wait(run)
            else:
                await self._take(run)
        return self._run

    async def _take(self, run: WarmRun) -> None:
        """Take this instance of the run, unless it leaves the cache meanwhile."""
        await run.lock.acquire()
        run.is_held = True
        try:
            if run.is_pinned:
                # Bundles are decided in order: once this empty one is, so are all before it.
                await self._dispatcher.store.commit(Bundle())
            if self._dispatcher.cache.get(self._run_id) is run and not run.machine.is_busy:
                run.pin()
                self._run = run
        finally:
            if self._run is None:
                _unlock(run)

    def release(self, _: object = None) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.unpin()
            _unlock(run)
            cache = self._dispatcher.cache
            cache.weigh(run)
            cache.trim()


def _unlock(run: WarmRun) -> None:
    run.is_held = False
    run.lock.release()
