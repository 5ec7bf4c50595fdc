"""A front end: an engine that starts runs, sends messages and reads, and executes nothing.

It has no host row and no heartbeat, and owns no run. A run that it starts is unowned until a host claims it, as after a
transaction on a user's own connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from perdure.core.errors import InputError, StoreError
from perdure.core.hosts.hints import Hint
from perdure.core.ids import HostId, RunId
from perdure.core.messages import Message, Work
from perdure.engine.runs.warm import create_run
from perdure.host.clock import elapsed_ms
from perdure.host.cluster.hints import Hints
from perdure.host.host import Host
from perdure.host.runs.batch import RunStart
from perdure.host.runs.dispatcher import Dispatcher
from perdure.host.transactions.joining import OwnTransaction
from perdure.host.transactions.steps import Transactions
from perdure.store.commit.bundle import Bundle

SET_CLOCK_MS = 60_000
"""How often it sets its clock by the store's; hosts do so with each heartbeat."""


class FrontEnd(Host):
    """Gives hosts hints of what it sends. Reads the store once per heartbeat interval if callers wait for runs."""

    async def start(self) -> None:
        store = self.context.store
        if not store.is_shared:
            raise InputError(
                f"{store.name} can be opened by one engine only, and with hosts=False it executes nothing",
                "use a file or Postgres, and run a worker on it",
            )
        await self.membership.set_clock()
        await self.dispatcher.catalogue.refresh()
        await self.relays.open(relays_here=False)
        await self.hints.open(self._make_hint_channel())
        self.context.spawn(self._look_for_ever())

    def _make_transactions(self) -> Transactions:
        return _Transactions(self.dispatcher)

    def _make_hints(self) -> Hints:
        return Hints(self.context, self, assumes_hosts=True)

    def message_sent(self, message: Message, owner: HostId | None = None) -> None:
        """The run's owner delivers it."""
        self.hints.message_sent(message, owner)

    def message_kept(self, message: Message) -> None:
        """The host that takes the run over delivers it."""

    def work_queued(self, work: Work) -> None:
        """A host claims it."""
        self.hints.work_queued(work)

    def hooks_changed(self) -> None:
        """A host matches it."""
        self.hints.look()

    def hint_arrived(self, hint: Hint) -> None:
        if hint.look:
            self.relays.refresh_soon(is_changed=True)
        self.remote_runs.heed(hint)

    def hints_lost(self) -> None:
        self.remote_runs.look()

    async def stop(self) -> None:
        await self.hints.flush()
        self.kill()

    async def _look_for_ever(self) -> None:
        set_at_ms = elapsed_ms()
        while True:
            await asyncio.sleep(self.context.settings.heartbeat)
            self.ask_for_hints()
            self.remote_runs.look()
            self.relays.refresh_soon()
            if elapsed_ms() - set_at_ms > SET_CLOCK_MS:
                set_at_ms = elapsed_ms()
                with suppress(StoreError):
                    await self.membership.set_clock()

    def _owner(self) -> None:
        """It owns no run: a host claims what it admits."""

    async def begin_run(self, start: RunStart) -> RunId:
        if start.is_limited:
            return await self.admissions.start(start)
        run_id, bundle = _unowned(self.dispatcher, start)
        await self.context.store.commit(bundle)
        self.runs_released()
        return run_id

    def begin_soon(self, start: RunStart) -> asyncio.Future[RunId]:
        return asyncio.ensure_future(self.begin_run(start))


class _Transactions(Transactions):
    @asynccontextmanager
    async def begin(self) -> AsyncIterator[OwnTransaction]:
        async with self._begin(_UnownedRuns) as transaction:
            yield transaction


class _UnownedRuns(OwnTransaction):
    """A transaction whose runs belong to no host when it is committed."""

    async def _start(self, start: RunStart) -> RunId:
        run_id, bundle = _unowned(self.dispatcher, start)
        self._sent.append(bundle)
        return run_id

    async def _commit(self, decided: asyncio.Future[Exception | None]) -> None:
        await super()._commit(decided)
        self.dispatcher.context.listener.runs_released()


def _unowned(dispatcher: Dispatcher, start: RunStart) -> tuple[RunId, Bundle]:
    """An unowned run with its first entry alone. The host that claims it takes its first turn."""
    run_id, bundle = start.run_id or dispatcher.staging.new_run_id(), Bundle()
    now_ms = dispatcher.sources.now_ms()
    enrolments = dispatcher.context.enrolments.of(run_id, start.workflow.name, now_ms)
    new = start.row(run_id, now_ms, None, enrolments)
    create_run(bundle, new, [start.event(run_id)], dispatcher.sources)
    return run_id, bundle
