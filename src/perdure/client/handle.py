"""A handle: one run, seen from outside."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar, overload

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.failures import decode_failure
from perdure.authoring.registry import find
from perdure.authoring.signal import Signal, require_signal
from perdure.authoring.texts import require_text
from perdure.authoring.workflow import Workflow
from perdure.client.stored import stored_run
from perdure.client.streams import Abandoned, Chunk, StreamReader, require_offset
from perdure.core.errors import (
    CorruptJournal,
    RunCancelled,
    RunClosed,
    RunDiverged,
    RunFailed,
    UnknownName,
)
from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import Terminal
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.limits import MAX_KEY_LENGTH, MAX_PAYLOAD_BYTES
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid, signal_guid
from perdure.host.hosting import POLL_MS, Hosting
from perdure.host.watching import Ending
from perdure.store.bundle import Bundle
from perdure.store.records import Run

R = TypeVar("R")
T = TypeVar("T")

_POLL_S = POLL_MS / 1000


class RunStatus(StrEnum):
    """Where a run stands. `diverged` and `parked` runs wait for somebody to do something."""

    APPROVED = "approved"
    RUNNING = "running"
    BLOCKED = "blocked"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CONTINUED = "continued"
    DIVERGED = "diverged"
    PARKED = "parked"


class Handle(Generic[R]):
    """A run. Any process with the same store can have a handle of it."""

    def __init__(
        self, hosting: Hosting, run_id: RunId, workflow: Workflow[..., R] | None = None
    ) -> None:
        self.run_id = run_id
        self._hosting = hosting
        self._store = hosting.host.store
        self._workflow = workflow

    def __repr__(self) -> str:
        return f"<Handle {self.run_id}>"

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - its users expect it
        """What the run returned, once that is durable; raises what it raised.

        Raises `TimeoutError` if it is not over in time: the run goes on, and can be asked again.
        """
        if timeout is None:
            return await self._outcome(await self._ending())
        limit_s = milliseconds(timeout, "timeout") / 1000
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                ending = await self._ending()
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"run {self.run_id} is not over after {limit_s:g} s: it goes on, ask again later"
            ) from None
        return await self._outcome(ending)

    async def _outcome(self, ending: Ending) -> R:
        codec = self._hosting.host.codec
        if ending.status is Status.COMPLETED:
            workflow = await self._definition()
            result: R = workflow.signature.unpack_result(codec, ending.payload or b"null")
            return result
        if ending.status is Status.CANCELLED:
            raise RunCancelled(f"run {self.run_id!r} was cancelled", "it has no result")
        raise decode_failure(codec, ending.payload, what=f"run {self.run_id!r}", kind=RunFailed)

    async def _definition(self) -> Workflow[..., R]:
        if self._workflow is None:
            run = await self._row()
            self._workflow = find("workflow", run.program, run.version)
            if self._workflow is None:
                raise UnknownName(
                    f"run {self.run_id!r} is of workflow {run.program!r}, which is not registered here",
                    "import the module that defines it",
                )
        return self._workflow

    async def _ending(self) -> Ending:
        host = self._hosting.host
        while True:
            told = host.watchers.ending_of(self.run_id)
            try:
                # While this process has the run in memory it will be told; else only the store knows.
                ending = None
                if self.run_id not in host.residents:
                    ending = await self._stored_ending()
                if ending is None:
                    ending = await told
            finally:
                host.watchers.forget(self.run_id, told)
            if ending is not None:
                return ending

    async def _stored_ending(self) -> Ending | None:
        """How the run ended, if it has; raises if it waits for somebody to mend it."""
        run = await self._row()
        if run.status in TERMINAL:
            return await self._read_ending(run)
        if run.parked is not None and not await self._is_to_be_cancelled():
            raise RunDiverged(
                f"run {self.run_id!r} is parked: {run.parked}", "it goes on when that is mended"
            )
        return None

    async def _is_to_be_cancelled(self) -> bool:
        """Whether a cancel is on its way, which is all that a parked run takes."""
        messages = await self._store.messages(self.run_id)
        return any(message.kind == "cancel" for message, state, _ in messages if state == "pending")

    async def _read_ending(self, run: Run) -> Ending:
        entries = await self._store.entries(self.run_id, run.seq - 1, run.seq)
        event = entries[-1].event if entries else None
        if not isinstance(event, Terminal):
            raise CorruptJournal(
                f"run {self.run_id!r} is {run.status}, but its last entry does not say so",
                "run `verify` to find what was changed",
            )
        return Ending(run.status, event.payload)

    async def _row(self) -> Run:
        return await stored_run(self._store, self.run_id)

    async def status(self) -> RunStatus:
        run = await self._row()
        if run.parked is not None and run.status not in TERMINAL:
            diverged = run.parked.startswith(RunDiverged.code)
            return RunStatus.DIVERGED if diverged else RunStatus.PARKED
        return RunStatus(run.status.value)

    async def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - what it is
        """Send the run a signal; returns when it is durable.

        Two signals with the same `id` are one, so that a sender may try again.
        """
        sent = require_signal(signal)
        host = self._hosting.host
        if id is None:
            sender = host.sources.entropy(16).hex()
        else:
            sender = f"id:{require_text('the id of a signal', id, MAX_KEY_LENGTH)}"
        payload = sent.encode(host.codec, value)
        guid = signal_guid(self.run_id, sent.name, sender)
        await self._send(f"signal:{signal.name}", guid, payload, f"take signal {signal.name!r}")

    async def cancel(self, reason: str = "") -> None:
        """Ask the run to stop; returns when that is durable. It cleans up first, and its children stop too."""
        text = require_text("the reason of a cancel", reason, MAX_PAYLOAD_BYTES // 4, 0)
        await self._send("cancel", cancel_guid(self.run_id), text.encode(), "be cancelled")

    async def _send(self, kind: str, guid: Any, payload: bytes, what: str) -> None:
        run = await self._row()
        if run.status in TERMINAL:
            raise RunClosed(
                f"run {self.run_id!r} is {run.status} and can't {what}", "start another run"
            )
        now = self._hosting.host.sources.now_ms()
        message = Message(self.run_id, guid, kind, now, now, payload=payload)
        bundle = Bundle()
        bundle.enqueue(message)
        await self._store.commit(bundle)
        if run.owner == self._hosting.host.host_id:
            self._hosting.poller.sent(message)

    async def events(self, first: int = 0) -> AsyncIterator[Entry]:
        """The run's entries from number `first` on, and each new one when it is durable, to the last."""
        watchers = self._hosting.host.watchers
        grown = watchers.follow(self.run_id)
        try:
            while True:
                grown.clear()
                run = await self._row()
                for entry in await self._store.entries(self.run_id, first):
                    yield entry
                    first = entry.seq + 1
                if run.status in TERMINAL and first >= run.seq:
                    return
                try:
                    async with asyncio.timeout(_POLL_S):
                        await grown.wait()
                except TimeoutError:
                    continue
        finally:
            watchers.unfollow(grown, self.run_id)

    async def published(self) -> dict[str, Any]:
        """The newest value of each name that the run published."""
        await self._row()
        codec = self._hosting.host.codec
        values = await self._store.published(self.run_id)
        return {name: codec.decode(payload, object) for name, payload in values.items()}

    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: Literal[False] = False
    ) -> AsyncGenerator[Chunk[T] | Abandoned, None]: ...
    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: Literal[True]
    ) -> AsyncGenerator[Chunk[T], None]: ...
    @overload
    def stream(
        self, name: str, *, start: int = 0, completed_only: Literal[False] = False
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]: ...
    @overload
    def stream(
        self, name: str, *, start: int = 0, completed_only: Literal[True]
    ) -> AsyncGenerator[Chunk[Any], None]: ...
    def stream(
        self, name: str, *, of: Any = object, start: int = 0, completed_only: bool = False
    ) -> AsyncGenerator[Any, None]:
        """The chunks of a stream from offset `start` on, and each new one when it is durable, to the run's end.

        Chunks come as `of`, in the order of their offsets, each once, those of a running task at once; an `Abandoned`
        takes back what turned out not to count, from before `start` too. With `completed_only` a chunk
        comes when it counts for good, and nothing is taken back.
        """
        reader = StreamReader(self._hosting, self.run_id, name, of)
        return reader.read(require_offset(start), completed_only=completed_only)
