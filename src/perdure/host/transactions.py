"""Steps whose own rows commit with their completion, and transactions of users outside a run.

A transactional body runs on a transaction. When it returns, its run takes the completion in, alone, and what follows
from it commits there: row, digit and next intent are one. If it does not come to that, nothing of it was: the body
runs again, or its failure is journaled like any other.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.authoring.failures import encode_failure
from perdure.core.errors import (
    CommitRejected,
    InputError,
    StoreClosed,
    StoreError,
    TransactionError,
    TransactionInterrupted,
)
from perdure.core.ids import RunId
from perdure.engine.replay.facts import Outcome
from perdure.engine.replay.warm import WarmRun
from perdure.host.body import Body
from perdure.host.host import Host
from perdure.host.joining import OwnTransaction, UsersTransaction, current
from perdure.host.patience import Patience
from perdure.store.bundle import Bundle

log = logging.getLogger("perdure.host")


class Transactions:
    """All transactions of one host."""

    def __init__(self, host: Host, limit_s: float) -> None:
        self._host = host
        self._limit_s = limit_s

    def require_none(self) -> None:
        """Refuse to begin one inside another: the inner one would be there though the outer one is rolled back."""
        if current(self._host) is not None:
            raise InputError(
                "a transaction inside another one of the same engine",
                "use the one that is open: pass its `tx` on; the engine joins it by itself",
            )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[OwnTransaction]:
        """A transaction that is rolled back unless it is committed inside."""
        async with self._host.store.transaction(self._limit_s) as rows:
            transaction = OwnTransaction(self._host, rows)
            try:
                with transaction.current():
                    yield transaction
            finally:
                transaction.end()

    @asynccontextmanager
    async def join(self, connection: object) -> AsyncIterator[UsersTransaction]:
        """The transaction that a user has begun on a connection of the user's own."""
        rows = self._host.store.join(connection)
        transaction = UsersTransaction(self._host, rows)
        async with rows.block():
            with transaction.current():
                yield transaction

    async def execute(self, body: Body) -> Outcome | None:
        """Execute a body and commit its outcome. Returns one that is to be reported like any other: a failure.

        What the database interrupts is begun again, on a new transaction: nothing of it was written.
        """
        patience = Patience()
        while True:
            body.renew()
            try:
                return await self._attempt(body)
            except StoreClosed:
                raise
            except (TransactionInterrupted, CommitRejected, StoreError) as error:
                if not await self._is_wanted(body):
                    return None
                log.warning("a transaction begins again in %.2f s: %s", patience.delay_s, error)
            await patience.wait()

    async def _attempt(self, body: Body) -> Outcome | None:
        home = body.home
        try:
            async with self.begin() as transaction, self._hold(body, transaction) as hold:
                body.home = transaction
                if transaction.rows.is_exclusive:
                    # What this run has under way could not be decided while the transaction is open.
                    transaction.rows.prepare = hold.take
                body.transaction = transaction.statements
                outcome = await self._host.bodies.outcome(body)
                if outcome.ok or transaction.rows.is_interrupted:
                    transaction.rows.require_open()
                if not outcome.ok:
                    return outcome
                body.is_reporting = True
                await self._complete(transaction, hold, body, outcome)
                return None
        except (TransactionError, TimeoutError) as error:
            if isinstance(error, TransactionInterrupted):
                raise
            failure = encode_failure(self._host.codec, error)
            return Outcome(False, failure, body.task.retry.covers(error))
        finally:
            body.home = home

    @asynccontextmanager
    async def _hold(self, body: Body, transaction: OwnTransaction) -> AsyncIterator["_Hold"]:
        """The means to hold the run; let go when the transaction is decided, if it came to that."""
        hold = _Hold(self._host, body.info.run_id)
        try:
            yield hold
        finally:
            if transaction.deciding is None:
                hold.let_go()
            else:
                transaction.deciding.add_done_callback(hold.let_go)

    async def _complete(
        self, transaction: OwnTransaction, hold: "_Hold", body: Body, outcome: Outcome
    ) -> None:
        """Commits: the completion and what the program decides on it, with the rows. Else neither."""
        run, info = await hold.take(), body.info
        is_here = run is not None and self._host.residents.get(info.run_id) is run
        if run is None or not is_here or not _awaits(run, body):
            raise TransactionInterrupted(
                f"run {info.run_id!r} does not wait for attempt {info.attempt} of {info.step}",
                "see whether it still wants it",
            )
        try:
            turn = self._host.staging.turn(run, body.tell(outcome))
        except Exception as error:
            # The rows are as they should be, and so is their step: only what the program makes of it is not.
            await transaction.commit_alone(await self._host.parking.completion(body, outcome))
            await self._host.parking.set_aside(info.run_id, error)
        else:
            await transaction.commit(turn)

    async def _is_wanted(self, body: Body) -> bool:
        """Whether the run is still this host's, and waits for this attempt."""
        is_wanted = False

        def look(run: WarmRun) -> None:
            nonlocal is_wanted
            is_wanted = _awaits(run, body)

        return await self._host.advance(body.info.run_id, look) and is_wanted


def _awaits(run: WarmRun, body: Body) -> bool:
    promise = run.machine.promises.get(body.info.step)
    return promise is not None and promise.is_running and promise.attempt == body.info.attempt


class _Hold:
    """A run for one alone: from when it is taken until it is let go it takes in no other fact."""

    def __init__(self, host: Host, run_id: RunId) -> None:
        self._host = host
        self._run_id = run_id
        self._run: WarmRun | None = None

    async def take(self) -> WarmRun | None:
        """The run, when all that it has taken in before is decided. `None` if it is not this host's."""
        while self._run is None:
            run = self._host.residents.get(self._run_id)
            if run is None:
                run = await self._host.loader.load(self._run_id)
            if run is None:
                return None
            await self._take(run)
        return self._run

    async def _take(self, run: WarmRun) -> None:
        """Take that one, unless it leaves memory meanwhile."""
        await run.turn.acquire()
        run.is_held = True
        try:
            if run.in_flight:
                # Bundles are decided in their order: when this one is, those before it are.
                await self._host.store.commit(Bundle())
            if self._host.residents.get(self._run_id) is run:
                run.in_flight += 1
                self._run = run
        finally:
            if self._run is None:
                _release(run)

    def let_go(self, _: object = None) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.in_flight -= 1
            _release(run)
            for victim in self._host.residents.excess():
                self._host.evict(victim)


def _release(run: WarmRun) -> None:
    run.is_held = False
    run.turn.release()
