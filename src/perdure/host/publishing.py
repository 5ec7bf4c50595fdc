"""Values that tasks publish, on their way to the store: of each name only the newest.

The store takes them from whoever owns the run, or has claimed the task: not from a host that has lost it and does not
know that yet, and not when the run is over. Nobody hears that they were passed over. So a host that has the run or the
task again, whose body still counts, says it once more: at once, and with the outcome, which may be quicker.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from perdure.core.ids import RunId
from perdure.host.body import Body, Said
from perdure.host.host import Host
from perdure.store.bundle import Bundle
from perdure.store.records import Tenure


class Publisher:
    """One commit of a run's values at a time; what is published meanwhile goes with the next."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._values: dict[RunId, dict[str, tuple[Body, Said]]] = {}
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
        try:
            while values := self._values.pop(run_id, None):
                bundle = Bundle()
                for body, said in values.values():
                    bundle.publish(run_id, *said, self._tenure(body))
                await self._host.store.commit(bundle)
                for body, said in values.values():
                    if body.said is None:
                        body.said = {}
                    body.said[said.name] = said
        finally:
            self._sending.pop(run_id).set()

    def _tenure(self, body: Body) -> Tenure:
        return Tenure(self._host.host_id, body.info.step if body.is_claimed else None)
