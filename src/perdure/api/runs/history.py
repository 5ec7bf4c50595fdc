"""The journal of a run with its postings: pages, and a stream that follows it. `id` is the offset of an entry."""

import msgspec
from starlette.responses import Response

from perdure.api.exchange import Exchange
from perdure.api.problems import Refusal
from perdure.api.runs.channel import Channels
from perdure.api.runs.pages import BookedEvent, booked_events
from perdure.api.streaming import event_stream


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries: from offset `first` on; a negative one counts from the end. `data=false` leaves the data out."""

    first: int = 0
    limit: int = 200
    data: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= 1000:
            raise ValueError(f"limit is {self.limit}: pass a number from 1 to 1000")
        if not -(2**53) <= self.first <= 2**53:
            raise ValueError("first is out of range: pass the number of an entry")


class HistoryPage(msgspec.Struct, frozen=True):
    """Entries of a chain of runs. `next` is the `first` of the next page; `entries` counts those of the whole chain."""

    events: list[BookedEvent]
    next: int | None
    entries: int


async def history(exchange: Exchange) -> HistoryPage | Response:
    chain = await exchange.chain()
    query: HistoryQuery = exchange.query
    total = sum(run.seq for run in chain)
    first = query.first if query.first >= 0 else max(0, total + query.first)
    if exchange.wants_events:
        channels: Channels = exchange.shared.setdefault("channels", Channels())
        return event_stream(exchange, channels.follow(exchange, resumed_at(exchange, first)))
    events = [each async for each in booked_events(exchange, chain, first, query.limit)]
    if not query.data:
        events = [msgspec.structs.replace(each, data={}) for each in events]
    after = first + len(events)
    return HistoryPage(events, after if events and after < total else None, total)


def resumed_at(exchange: Exchange, first: int) -> int:
    """Where a stream begins: after the event that the caller received last, or at `first`."""
    last = exchange.request.headers.get("last-event-id")
    if last is None:
        return first
    if not last.isascii() or not last.isdecimal() or len(last) > 15:
        raise Refusal(
            400,
            "malformed",
            f"Last-Event-ID is {last[:40]!r}",
            "send the id of the last event that was received",
        )
    return int(last) + 1
