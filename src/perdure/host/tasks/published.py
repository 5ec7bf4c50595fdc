"""Writes the values that tasks publish to the store: the newest of each name.

The store takes a value only from the host that owns the run or has claimed the task, and only while the run is open.
It ignores others without an error. So a host that lost the run or the task and has regained it publishes the values of
an attempt that still counts again: at once, and with the outcome, which may be committed first.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from perdure.core.errors import StoreClosed, StoreError
from perdure.core.ids import RunId
from perdure.host.backoff import Backoff
from perdure.host.context import HostContext
from perdure.host.tasks.attempt import Attempt, PublishedValue
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import TaskHolder

log = logging.getLogger("perdure.host")

PendingValues = dict[str, tuple[Attempt, PublishedValue, bool]]
"""By name: the attempt that published, the newest value, and whether it was sent to the store before."""


class Publisher:
    """Commits the values of each run one batch at a time; values published meanwhile go into the next.

    While the store does not answer, the publisher retries, unless the host stops. Values that the store refuses are
    dropped, and the error is reported to the host.
    """

    def __init__(self, context: HostContext) -> None:
        self._context = context
        self._values: dict[RunId, PendingValues] = {}
        self._sending: dict[RunId, asyncio.Event] = {}

    def publish(self, attempt: Attempt, name: str, payload: bytes) -> None:
        self._put(
            attempt, PublishedValue(name, payload, self._context.sources.stamp()), again=False
        )

    def publish_again(self, attempt: Attempt) -> None:
        """Publish an attempt's values again: this host had lost its run or work, and the store may lack them."""
        for value in () if attempt.published is None else attempt.published.values():
            self._put(attempt, value, again=True)

    def _put(self, attempt: Attempt, value: PublishedValue, *, again: bool) -> None:
        run_id = attempt.info.run_id
        values = self._values.setdefault(run_id, {})
        known = values.get(value.name)
        if known is None or known[1].at_ms <= value.at_ms:
            values[value.name] = attempt, value, again
        if run_id not in self._sending:
            self._sending[run_id] = asyncio.Event()
            self._context.spawn(self._send(run_id))

    def settle(self, run_id: RunId) -> Awaitable[Any] | None:
        """Returns what to await until all values of a run are durable or have failed; `None` if none is pending."""
        sent = self._sending.get(run_id)
        return None if sent is None else sent.wait()

    async def _send(self, run_id: RunId) -> None:
        backoff = Backoff(self._context.outage)
        try:
            while values := self._values.pop(run_id, None):
                try:
                    await self._commit(run_id, values)
                except StoreError as error:
                    if self._context.stopping.is_set() or isinstance(error, StoreClosed):
                        raise
                    self._put_back(run_id, values)
                    backoff.blame(error, f"values published by run {run_id}")
                    await backoff.wait(self._context.stopping)
                except Exception as error:  # values published meanwhile must still be sent
                    self._context.fail(error)
                else:
                    backoff.renew()
        finally:
            self._values.pop(run_id, None)
            self._sending.pop(run_id).set()

    async def _commit(self, run_id: RunId, values: PendingValues) -> None:
        bundle = Bundle()
        for attempt, value, again in values.values():
            bundle.publish(run_id, *value, self._tenure(attempt), again=again)
        await self._context.store.commit(bundle)
        for attempt, value, _ in values.values():
            if attempt.published is None:
                attempt.published = {}
            attempt.published[value.name] = value

    def _put_back(self, run_id: RunId, values: PendingValues) -> None:
        """Send them again, unless newer ones replaced them meanwhile.

        They count as sent before: the store may have written them before it failed, and since then a newer value from
        another host.
        """
        waiting = self._values.setdefault(run_id, {})
        for name, (attempt, value, _) in values.items():
            known = waiting.get(name)
            if known is None or known[1].at_ms < value.at_ms:
                waiting[name] = attempt, value, True

    def _tenure(self, attempt: Attempt) -> TaskHolder:
        return TaskHolder(self._context.host_id, attempt.info.step if attempt.is_claimed else None)
