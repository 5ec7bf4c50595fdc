"""Values that tasks publish, on their way to the store: of each name only the newest."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from perdure.core.ids import RunId
from perdure.host.host import Host
from perdure.store.bundle import Bundle


class Publisher:
    """One commit of a run's values at a time; what is published meanwhile goes with the next."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._values: dict[RunId, dict[str, bytes]] = {}
        self._sending: dict[RunId, asyncio.Event] = {}

    def publish(self, run_id: RunId, name: str, payload: bytes) -> None:
        self._values.setdefault(run_id, {})[name] = payload
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
                for name, payload in values.items():
                    bundle.publish(run_id, name, payload, self._host.sources.now_ms())
                await self._host.store.commit(bundle)
        finally:
            self._sending.pop(run_id).set()
