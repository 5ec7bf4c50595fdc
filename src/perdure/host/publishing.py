"""Values that tasks publish, on their way to the store: of each name only the newest.

The store takes them from whoever owns the run, or has claimed the task: not from a host that has lost it and does not
know that yet, and not when the run is over.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from perdure.core.ids import RunId
from perdure.host.body import Body
from perdure.host.host import Host
from perdure.store.bundle import Bundle
from perdure.store.records import Tenure


class Publisher:
    """One commit of a run's values at a time; what is published meanwhile goes with the next."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._values: dict[RunId, dict[str, tuple[Body, bytes]]] = {}
        self._sending: dict[RunId, asyncio.Event] = {}

    def publish(self, body: Body, name: str, payload: bytes) -> None:
        run_id = body.info.run_id
        self._values.setdefault(run_id, {})[name] = body, payload
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
                for name, (body, payload) in values.items():
                    now_ms = self._host.sources.now_ms()
                    bundle.publish(run_id, name, payload, now_ms, self._tenure(body))
                await self._host.store.commit(bundle)
        finally:
            self._sending.pop(run_id).set()

    def _tenure(self, body: Body) -> Tenure:
        return Tenure(self._host.host_id, body.info.step if body.is_claimed else None)
