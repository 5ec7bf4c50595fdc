"""The channel that carries hints between the processes of one store (`perdure.core.hosts.hints`)."""

from collections.abc import Callable
from typing import Protocol

from perdure.core.ids import HostId

OnHint = Callable[[bytes], None]
"""Called in the event loop with each hint that arrives, and with `b""` if hints may have been lost."""


class HintChannel(Protocol):
    """Sends and receives hints. Belongs to one event loop. It may lose hints, and raises no error for these."""

    async def open(self) -> None:
        """Begin to receive. Returns when hints sent to this process arrive, or are known never to."""
        ...

    async def send(self, to: HostId | None, data: bytes) -> None:
        """Send a hint to one process; with `None`, to all that have a channel, this one excepted if that is cheap."""
        ...

    async def rename(self, host: HostId) -> None:
        """Receive the hints to this host id from now on: the host continues under a new one."""
        ...

    def close(self) -> None: ...
