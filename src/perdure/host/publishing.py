"""Values that tasks publish, on their way to the store: of each name only the newest.

The store takes them from whoever owns the run, or has claimed the task: not from a host that has lost it and does not
know that yet, and not when the run is over. Nobody hears that they were passed over. So a host that has the run or the
task again, whose body still counts, says it once more: at once, and with the outcome, which may be quicker.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from perdure.core.errors import StoreClosed, StoreError
from perdure.core.ids import RunId
from perdure.host.body import Body, Said
from perdure.host.host import Host
from perdure.host.patience import Patience
from perdure.store.bundle import Bundle
from perdure.store.records import Tenure

log = logging.getLogger("perdure.host")

Values = dict[str, tuple[Body, Said]]
"""Of each name the newest value, and who published it."""


class Publisher:
    """One commit of a run's values at a time; what is published meanwhile goes with the next.

    A store that does not answer is waited for, unless the host stops. What the store refuses is told to the host,
    and given up.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._values: dict[RunId, Values] = {}
        self._sending: dict[RunId, asyncio.Event] = {}

    def publish(self, body: Body, name: str, payload: bytes) -> None:
        self._put(body, Said(name, payload, self._host.sources.now_ms()))

    def publish_again(self, body: Body) -> None:
        """What the body has said may have been passed over: its run, or its work, was lost and came back."""
        for said in () if body.said is None else body.said.values():
            self._put(body, said)

    def _put(self, body: Body, said: Said) -> None:
        run_id = body.info.run_id
        values = self._values.setdefault(run_id, {})
        known = values.get(said.name)
        if known is None or known[1].at_ms <= said.at_ms:
            values[said.name] = body, said
        if run_id not in self._sending:
            self._sending[run_id] = asyncio.Event()
            self._host.spawn(self._send(run_id))

    def settle(self, run_id: RunId) -> Awaitable[Any] | None:
        """What to wait for until all that a run has published is durable, or has failed to be."""
        sent = self._sending.get(run_id)
        return None if sent is None else sent.wait()

    async def _send(self, run_id: RunId) -> None:
        patience = Patience()
        try:
            while values := self._values.pop(run_id, None):
                try:
                    await self._commit(run_id, values)
                except StoreError as error:
                    if self._host.stopping.is_set() or isinstance(error, StoreClosed):
                        raise
                    self._put_back(run_id, values)
                    log.warning(
                        "what run %s has published waits %.2f s for its store: %s",
                        *(run_id, patience.delay_s, error),
                    )
                    await patience.wait(self._host.stopping)
                except Exception as error:  # what was published meanwhile is not to blame for it
                    self._host.on_failure(error)
                else:
                    patience.renew()
        finally:
            self._values.pop(run_id, None)
            self._sending.pop(run_id).set()

    async def _commit(self, run_id: RunId, values: Values) -> None:
        bundle = Bundle()
        for body, said in values.values():
            bundle.publish(run_id, *said, self._tenure(body))
        await self._host.store.commit(bundle)
        for body, said in values.values():
            if body.said is None:
                body.said = {}
            body.said[said.name] = said

    def _put_back(self, run_id: RunId, values: Values) -> None:
        """They are to be sent again, save for those that newer ones have taken the place of meanwhile."""
        waiting = self._values.setdefault(run_id, {})
        for name, value in values.items():
            known = waiting.get(name)
            if known is None or known[1].at_ms < value[1].at_ms:
                waiting[name] = value

    def _tenure(self, body: Body) -> Tenure:
        return Tenure(self._host.host_id, body.info.step if body.is_claimed else None)
