"""Events in a stream of NATS JetStream."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Unpack

from perdure.authoring.texts import require_user_text
from perdure.core.buses.cloud_events import CONTENT_TYPE, cloud_event_json
from perdure.core.errors import BusRefused, BusUnavailable, InputError
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.bus.bus import BusOptions, EventBus

if TYPE_CHECKING:
    from nats.aio.client import Client

CLOSE_S = 5.0


class JetStream(EventBus):
    """Publishes each event as a CloudEvent to the subject `<subject>.<type>`, which a stream of yours must take.

    `url` is that of a server, such as "nats://localhost:4222". The header `Nats-Msg-Id` is the id of the event, so the
    stream keeps one of two that come within its duplicate window. Needs `perdure[nats]`.
    """

    def __init__(
        self,
        url: str,
        *,
        subject: str = "perdure",
        name: str | None = None,
        **options: Unpack[BusOptions],
    ) -> None:
        self._subject = require_user_text("a subject", subject)
        if any(char in " *>" for char in subject):
            raise InputError(f"subject {subject!r} is a pattern", "use a name such as 'perdure'")
        super().__init__(f"nats:{subject}" if name is None else name, options)
        try:
            import nats  # noqa: PLC0415, F401 - an extra
        except ImportError:
            raise InputError(
                "the package nats-py is not installed", "pip install 'perdure[nats]'"
            ) from None
        self._url = url
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def publish(self, event: ContractEvent) -> None:
        from nats import errors  # noqa: PLC0415 - an extra
        from nats.js import errors as stream_errors  # noqa: PLC0415 - an extra

        subject = f"{self._subject}.{event.type}"
        headers = {"Nats-Msg-Id": event.event_id, "Content-Type": CONTENT_TYPE}
        body = cloud_event_json(event)
        try:
            client = await self._connected()
            await client.jetstream().publish(subject, body, headers=headers)
        except errors.MaxPayloadError as error:
            raise BusRefused(
                f"{self.name} refused an event of {len(body):,} bytes: {error}",
                "raise max_payload of the server, or pass payloads=False",
            ) from error
        except stream_errors.BadRequestError as error:
            raise BusRefused(f"{self.name} refused the event: {error}", "see the stream") from error
        except (errors.Error, OSError) as error:
            raise BusUnavailable(
                f"{self.name} can't be written to: {str(error) or type(error).__name__}",
                f"see whether the server runs and a stream takes {subject!r}",
            ) from error

    async def _connected(self) -> "Client":
        import nats  # noqa: PLC0415 - an extra

        async with self._connecting:
            if self._client is None or self._client.is_closed:
                self._client = await nats.connect(
                    self._url,
                    allow_reconnect=False,  # the relay tries again by itself
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=5,
                    error_cb=_ignore,
                )
            return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    await client.close()


async def _ignore(_: Exception) -> None:
    """The call that fails raises it, too."""
