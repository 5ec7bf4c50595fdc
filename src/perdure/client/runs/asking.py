"""Asks a run: sends a request, and waits for the run's answer. Asked again with the same id, it is the same request."""

import asyncio
from abc import abstractmethod
from typing import Any, TypeVar

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.request import Request, require_request
from perdure.client.large import encode_message
from perdure.client.runs.rows import require_unparked
from perdure.client.signals import OutgoingSignal, sender_of, was_delivered
from perdure.core.answers import answer_stream
from perdure.core.errors import InputError, NotDecodable, RequestRejected, RequestUnanswered
from perdure.core.ids import Guid, RunId
from perdure.core.journal.state import TERMINAL
from perdure.core.replay.identity import signal_guid
from perdure.host.host import Host
from perdure.store.rows.records import Run
from perdure.store.store import Store

T = TypeVar("T")
A = TypeVar("A")


class Asking:
    """The part of a handle that asks its run."""

    _host: Host
    _store: Store
    run_id: RunId

    async def ask(
        self,
        request: Request[T, A],
        value: T,
        *,
        id: str | None = None,  # noqa: A002 - as in signal
        timeout: Duration | None = None,  # noqa: ASYNC109 - its users expect it
    ) -> A:
        """Send the run a request, and wait for its reply.

        Raises `RequestRejected` if the run rejects it, and `RequestUnanswered` if the run ends without an answer. After
        `timeout` it raises `TimeoutError`: the request stays with the run, and the same call with the same `id` waits
        again, or returns the reply that came meanwhile, also after the end of the run. With another value it is
        refused with `SignalReused`.
        """
        asked = require_request(request)
        self._require_no_transaction("a reply")
        limit_s = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        dispatcher = self._host.dispatcher
        chosen = dispatcher.sources.entropy(16).hex() if id is None else id
        sender = sender_of(dispatcher, chosen)
        payload = await encode_message(
            dispatcher.context, self.run_id, lambda codec: asked.signal.encode(codec, value)
        )
        end = await self._receiver()
        guid = signal_guid(end.origin, asked.name, sender)
        what = f"request {asked.name!r} with id {chosen!r} to run {self.run_id!r}"
        outgoing = OutgoingSignal(end.origin, guid, payload, what, asked.signal.of)
        if not await was_delivered(dispatcher, outgoing):
            self._require_open(end, f"take request {asked.name!r}")
            await self._send(end, f"signal:{asked.name}", guid, payload)
        return await self._reply_in_time(asked, guid, what, limit_s)

    async def _reply_in_time(
        self, request: Request[Any, A], guid: Guid, what: str, limit_s: float | None
    ) -> A:
        limit = asyncio.timeout(limit_s or None)
        try:
            async with limit:
                return await self._reply(request, guid, what, waits=limit_s != 0)
        except TimeoutError:
            if limit_s != 0 and not limit.expired():
                raise
            raise TimeoutError(
                f"{what} has no answer after {limit_s:g} s: it stays with the run, ask again with the same id"
            ) from None

    async def _reply(self, request: Request[Any, A], guid: Guid, what: str, *, waits: bool) -> A:
        """The reply to the request, as soon as it is durable. Without `waits` raises `TimeoutError` if it is not."""
        watchers = self._host.dispatcher.watchers
        while True:
            run_id = (await self._chain_end()).run_id
            grown = watchers.follow(run_id)
            self._host.follows(run_id)
            try:
                while True:
                    grown.clear()
                    # Read the state before the answer: then no answer is missing at the end.
                    end = await self._chain_end()
                    if (found := await self._answer(end.origin, guid)) is not None:
                        return self._opened(request, what, *found)
                    if end.status in TERMINAL:
                        await self._require_not_erased(end.run_id, what)
                        raise RequestUnanswered(
                            f"run {self.run_id!r} is {end.status} and has not answered {what}",
                            "read its journal to see whether it received the request",
                        )
                    await require_unparked(self._store, end)
                    if not waits:
                        raise TimeoutError
                    if end.run_id != run_id:
                        break
                    await grown.wait()
            finally:
                watchers.unfollow(grown, run_id)

    async def _require_not_erased(self, run_id: RunId, what: str) -> None:
        """Raise `InputError` if the run was erased, with its answers."""
        if await self._store.retention.get([run_id]):
            raise InputError(
                f"the reply to {what} was erased, if there was one",
                "see the receipt: `engine.retention.get(run_id)`",
            )

    async def _answer(self, origin: RunId, guid: Guid) -> tuple[bytes, bool] | None:
        """The answer to a request, and whether it is a rejection; from the last run of the chain that received it."""
        received = [
            sent.run_id for sent in await self._store.sent_before(origin, guid) if sent.is_taken
        ]
        if not received:
            return None
        for is_rejection in (False, True):
            name = answer_stream(guid, is_rejection=is_rejection)
            for chunk in await self._store.chunks(max(received), name, 0, 1):
                return chunk.payload, is_rejection
        return None

    def _opened(self, request: Request[Any, A], what: str, payload: bytes, is_rejection: bool) -> A:
        codec = self._host.dispatcher.codec
        if is_rejection:
            raise RequestRejected(f"{what} was rejected", codec.decode(payload, str))
        try:
            reply: A = codec.decode(payload, request.reply)
        except NotDecodable as error:
            raise NotDecodable(f"the reply to {what}: {error.what}", error.remedy) from None
        return reply

    @abstractmethod
    async def _receiver(self) -> Run: ...

    @abstractmethod
    async def _chain_end(self) -> Run: ...

    @abstractmethod
    def _require_open(self, end: Run, what: str) -> None: ...

    @abstractmethod
    def _require_no_transaction(self, what: str) -> None: ...

    @abstractmethod
    async def _send(self, end: Run, kind: str, guid: Guid, payload: bytes) -> None: ...
