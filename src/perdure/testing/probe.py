"""Looks into an open engine and stops parts of it, for tests of Perdure itself.

The only module outside `client` and `host` that reads their private attributes: tests ask it instead.
"""

from typing import Any

from perdure.client.engine import Engine
from perdure.client.runs.handle import Handle
from perdure.client.sync import SyncEngine
from perdure.core.errors import EngineClosed
from perdure.core.ids import HostId, RunId
from perdure.engine.sources import Sources
from perdure.host.host import Host
from perdure.host.tasks.attempt import Attempt
from perdure.store.store import Store


class Probe:
    """What a test asks of an engine beyond its public methods. Reads the engine anew each time."""

    def __init__(self, engine: Engine | SyncEngine) -> None:
        self._engine = engine._engine if isinstance(engine, SyncEngine) else engine

    @staticmethod
    def host_of(handle: Handle[Any]) -> Host:
        """The host that a handle was made by, for scripts of the explorer, which get no engine."""
        return handle._host

    @property
    def is_open(self) -> bool:
        return self._engine._host is not None

    @property
    def host(self) -> Host:
        """The host with its parts, for tests that call or replace one of them."""
        host = self._engine._host
        if host is None:
            raise EngineClosed("the engine is not open", "probe it before it closes or is aborted")
        return host

    @property
    def store(self) -> Store:
        return self.host.context.store

    @property
    def url(self) -> str:
        """Where a test can connect to the store by itself."""
        return self._engine._url

    @property
    def host_id(self) -> HostId:
        """The host's current id: it changes when a peer took the host for dead."""
        return self.host.context.host_id

    @property
    def now_ms(self) -> int:
        """The time on the host's clock."""
        return self.host.context.sources.now_ms()

    @property
    def free_slots(self) -> int:
        """How many attempts, sync or async, could start now."""
        return self.host.executor.free_slots()

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts whose code runs here and whose outcome is not on its way yet."""
        return self.host.executor.under_way

    @property
    def is_executing(self) -> bool:
        """Whether an attempt runs here or reports its outcome."""
        return bool(self.host.executor.tasks)

    @property
    def warm_runs(self) -> set[RunId]:
        """The runs in the host's memory."""
        return {run.run_id for run in self.host.dispatcher.cache}

    async def open(self, sources: Sources) -> Host:
        """Open the engine on this clock and randomness instead of the machine's."""
        return await self._engine._open(sources)

    async def abort(self) -> None:
        """Stop the engine at once, as a crash would: it hands nothing back."""
        await self._engine._abort()

    async def poll(self) -> None:
        """Poll once. Returns when all that was found is taken over, delivered or claimed."""
        await self.host.poller.poll()

    def stop_polling(self) -> None:
        """From now on the host polls only when a test calls `poll`. It still delivers its own messages at once."""
        self.host.poller.kill()

    def stop_heartbeat(self) -> None:
        """Send no more heartbeats and leave the host's row. The host continues and believes that it owns its runs."""
        self.host.membership.kill()

    def stop_renewing_leases(self) -> None:
        """Let the leases of claimed tasks run out while the host still executes these tasks."""
        heartbeat = self.host.membership._heartbeat
        if heartbeat is None or heartbeat._renewal is None:
            raise AssertionError(f"{self.store.name} has one host only, which renews no leases")
        heartbeat._renewal._claims = lambda: ()
