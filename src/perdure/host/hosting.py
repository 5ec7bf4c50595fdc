"""A whole host, put together: the runs that it advances, its bodies, its poller, its queues."""

import asyncio
import logging
from collections.abc import Sequence

from perdure.core.codec import Codec
from perdure.core.ids import HostId
from perdure.engine.sources import Sources
from perdure.host.bodies import Bodies
from perdure.host.body import Body
from perdure.host.census import Census
from perdure.host.host import Host
from perdure.host.membership import Membership
from perdure.host.polling import Poller
from perdure.host.publishing import Publisher
from perdure.host.queues import QueueWorker
from perdure.host.residents import Residents
from perdure.host.settings import Settings
from perdure.host.streaming import Streaming
from perdure.host.transactions import Transactions
from perdure.store.store import Store

POLL_MS = 1000
"""How often whoever gives no signs of life asks its store what happened that nobody told it."""


LONGEST_FAREWELL_S = 10.0
"""How long a stop waits for a store that does not answer."""

log = logging.getLogger("perdure.host")


class Hosting:
    """Belongs to the event loop that made it."""

    def __init__(
        self,
        store: Store,
        host_id: HostId,
        codec: Codec,
        sources: Sources,
        settings: Settings,
        queues: Sequence[str] = (),
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._settings = settings
        self.bodies = self._make_bodies(codec, settings)
        self.host = Host(
            store,
            host_id,
            codec,
            sources,
            self.bodies,
            self._make_residents(settings),
            settings=settings,
        )
        self.publisher = Publisher(self.host)
        self.bodies.published = self.publisher.settle
        self.host.on_return = self.publisher.publish_again
        self.bodies.chunks_of = Streaming(self.host).chunks_of
        self.transactions = Transactions(self.host, settings.transaction_timeout)
        self.bodies.transact = self.transactions.execute
        self.worker = QueueWorker(self.host, queues, round(settings.lease * 1000))
        census = Census(self.host, round(settings.stale_after * 1000))
        self.poller = Poller(self.host, self.worker, census, POLL_MS)
        self.membership = Membership(self.host, self.worker, self.poller, census, queues, settings)

    def _make_bodies(self, codec: Codec, settings: Settings) -> Bodies:
        return Bodies(codec, settings.concurrency, settings.threads, self._publish)

    def _make_residents(self, settings: Settings) -> Residents:
        return Residents(settings.warm_runs)

    def _publish(self, body: Body, name: str, payload: bytes) -> None:
        self.publisher.publish(body, name, payload)

    async def start(self) -> None:
        """Take up what is left from before, then go on by itself."""
        await self.host.catalogue.look()
        await self.membership.join()
        await self.poller.poll()
        self.poller.start()

    async def stop(self) -> None:
        """Finish what runs or hand it back. Nothing is lost."""
        self.worker.pause()
        await self.poller.stop(self._settings.grace)
        try:
            await self.host.stop(self._settings.grace)
            await self._hand_back()
        finally:
            self.kill()

    async def _hand_back(self) -> None:
        """Let go of all runs and work, and then of the host's row."""
        try:
            async with asyncio.timeout(LONGEST_FAREWELL_S):
                await self.host.store.release_runs(self.host.host_id)
                await self.worker.stop()
                await self.membership.leave()
        except TimeoutError:
            log.warning(
                "%s did not answer for %g s: others go on with this host's runs when its heartbeats are missed",
                *(self.host.store.name, LONGEST_FAREWELL_S),
            )

    def kill(self) -> None:
        """Stop at once and tell nobody, as a crash would."""
        self.membership.kill()
        self.poller.kill()
        self.worker.close()
        self.host.kill()
