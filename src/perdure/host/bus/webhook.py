"""Events by HTTP: CloudEvents in JSON, signed by the specification of Standard Webhooks."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Unpack

from perdure.core.buses.cloud_events import CONTENT_TYPE, cloud_event_json
from perdure.core.buses.signatures import secret_bytes, signature_headers
from perdure.core.errors import BusRefused, BusUnavailable, InputError
from perdure.core.runs.contract_event import ContractEvent
from perdure.host.bus.bus import BusOptions, EventBus
from perdure.host.bus.http import HttpReply, addresses, parse_url, send_post
from perdure.host.clock import HostSources


def _now_s() -> float:
    return HostSources().now_ms() / 1000


BUSY = frozenset((408, 425, 429))
"""Statuses that ask to try again later."""


class Webhook(EventBus):
    """Posts each event to a URL. A status of 200 to 299 says that the receiver has it.

    `secrets` sign the events (`whsec_...`); while you replace one, pass both. After 408, 425, 429, 500 and above, and
    without a reply within `timeout`, all events wait and are tried again, after `Retry-After` if the receiver names a
    time. Any other status refuses the event. Redirects are not followed. A URL that leads into a private network is not
    used unless `allow_private`. The name is the host and the path of the URL unless `name` is given.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str],
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        **options: Unpack[BusOptions],
    ) -> None:
        self._target = parse_url(url)
        path = self._target.path.partition("?")[0]
        super().__init__(f"{self._target.authority}{path}" if name is None else name, options)
        if isinstance(secrets, str) or not secrets:
            raise InputError("a webhook without secrets", "pass secrets=['whsec_...']")
        self._keys = [secret_bytes(secret) for secret in secrets]
        self._headers = _require_headers(headers or {})
        self._allow_private = allow_private
        self.clock: Callable[[], float] = _now_s
        """The time of day in seconds, which is signed."""
        self._context: ssl.SSLContext | None = None

    async def publish(self, event: ContractEvent) -> None:
        body = cloud_event_json(event)
        signed = signature_headers(self._keys, event.event_id, int(self.clock()), body)
        headers = {
            **self._headers,
            "User-Agent": "perdure",
            "Content-Type": CONTENT_TYPE,
            **signed,
        }
        if self._target.is_secure and self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        ips = await addresses(self._target, allow_private=self._allow_private)
        reply = await send_post(self._target, ips, headers, body, self._context)
        self._judge(reply)

    def _judge(self, reply: HttpReply) -> None:
        status = reply.status
        if 200 <= status < 300:
            return
        what = f"{self.name} replied with status {status}"
        if status in BUSY or status >= 500:
            seconds = _seconds(reply.headers.get("retry-after"), self.clock())
            raise BusUnavailable(what, "see the receiver; events wait for it", seconds)
        raise BusRefused(what, "see the receiver, and replay the event when it takes it")


def _require_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        text = f"{name}{value}"
        if not text.isascii() or not text.isprintable() or not name or ":" in name or " " in name:
            raise InputError(f"header {name!r} can't be sent", "use printable ASCII")
    return dict(headers)


def _seconds(value: str | None, now_s: float) -> float | None:
    """What `Retry-After` asks for: a number of seconds, or a date."""
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None
