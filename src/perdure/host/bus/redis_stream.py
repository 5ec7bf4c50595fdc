"""Events in a stream of Redis."""

from typing import TYPE_CHECKING, Any, Unpack

from perdure.authoring.texts import require_user_text
from perdure.core.buses.cloud_events import cloud_event_json
from perdure.core.errors import BusRefused, BusUnavailable, InputError
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.bus.bus import BusOptions, EventBus

if TYPE_CHECKING:
    from redis.asyncio import Redis


class RedisStream(EventBus):
    """Adds each event to a stream, as a CloudEvent in the field `event`; beside it `id`, `type`, `run` and `seq`.

    `url` is that of the server, such as "redis://localhost:6379/0". With `max_length` Redis drops the oldest events
    beyond about so many. An event may be in the stream twice after a crash: `id` is the same. Needs `perdure[redis]`.
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str = "perdure",
        name: str | None = None,
        max_length: int | None = None,
        **options: Unpack[BusOptions],
    ) -> None:
        self._stream = require_user_text("the name of a stream", stream)
        super().__init__(f"redis:{stream}" if name is None else name, options)
        try:
            import redis.asyncio  # noqa: PLC0415, F401 - an extra
        except ImportError:
            raise InputError(
                "the package redis is not installed", "pip install 'perdure[redis]'"
            ) from None
        self._url = url
        self._max_length = max_length
        self._client: Redis | None = None

    async def publish(self, event: ContractEvent) -> None:
        from redis import exceptions as errors  # noqa: PLC0415 - an extra

        fields: dict[Any, Any] = {
            "id": event.event_id,
            "type": event.type.value,
            "run": event.run_id,
            "seq": event.seq,
            "event": cloud_event_json(event),
        }
        try:
            await self._connected().xadd(
                self._stream, fields, maxlen=self._max_length, approximate=True
            )
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise _unavailable(self.name, error) from error
        except (errors.BusyLoadingError, errors.ReadOnlyError, errors.OutOfMemoryError) as error:
            raise _unavailable(self.name, error) from error
        except errors.ResponseError as error:
            raise BusRefused(
                f"{self.name} refused the event: {error}", "see the server's log"
            ) from error
        except (errors.RedisError, OSError) as error:
            raise _unavailable(self.name, error) from error

    def _connected(self) -> "Redis":
        if self._client is None:
            from redis.asyncio import Redis  # noqa: PLC0415 - an extra

            self._client = Redis.from_url(self._url)
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _unavailable(name: str, error: Exception) -> BusUnavailable:
    return BusUnavailable(f"{name} can't be written to: {error}", "see whether the server runs")
