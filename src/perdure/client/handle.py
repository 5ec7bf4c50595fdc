"""A handle: one run, or a chain of runs that continue each other, seen from outside as one."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar, overload

import msgspec

from perdure.authoring.contradictions import unreadable_result
from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.failures import decode_failure
from perdure.authoring.program import Program
from perdure.authoring.response import OK, Response
from perdure.authoring.signal import Signal, require_signal
from perdure.authoring.texts import require_text
from perdure.client.answering import begun_steps, named_step, require_open
from perdure.client.callers import require_own_loop
from perdure.client.resending import Sending, was_taken
from perdure.client.sending import sender_of
from perdure.client.stored import require_unparked, stored_run
from perdure.client.streams import Abandoned, Chunk, StreamReader, require_offset
from perdure.client.waits import Waits, waits_of
from perdure.core.errors import (
    CorruptJournal,
    NotCommitted,
    NotDecodable,
    RunCancelled,
    RunClosed,
    RunDiverged,
    RunFailed,
    UnknownName,
    UnknownRun,
)
from perdure.core.graph.identity import RESPOND
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import Terminal
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.core.messages import Message
from perdure.core.replay.identity import cancel_guid, next_run_id, signal_guid
from perdure.host.hosting import POLL_MS, Hosting
from perdure.host.joining import Joining, current
from perdure.host.watching import Ending
from perdure.store.bundle import Bundle
from perdure.store.records import Run
from perdure.store.values import MAX_STEP_BYTES

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
    """A run. Any process with the same store can have a handle of it.

    Runs that continue each other are one to a handle, whichever of them it names: it asks the first for what
    was, and speaks to the last.
    """

    def __init__(
        self,
        hosting: Hosting,
        run_id: RunId,
        workflow: Program[..., R] | None = None,
        joined: Joining | None = None,
    ) -> None:
        self.run_id = run_id
        self._hosting = hosting
        self._store = hosting.host.store
        self._workflow = workflow
        self._joined = joined
        """The transaction that the run was started in."""
        self._parked: str | None = None
        """Why nothing came of the run when its ending was looked for last."""

    def __repr__(self) -> str:
        return f"<Handle {self.run_id}>"

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - its users expect it
        """What the run returned, once that is durable; raises what it raised.

        Raises `TimeoutError` if it is not over in time: the run goes on, and can be asked again.
        """
        self._require_outside("the result")
        if timeout is None:
            return await self._outcome(*await self._ending())
        limit_s = milliseconds(timeout, "timeout") / 1000
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                run_id, ending = await self._ending()
        except TimeoutError:
            if not limit.expired():
                raise
            parked = self._parked
            fate = "it goes on, ask again later" if parked is None else f"it is parked: {parked}"
            raise TimeoutError(
                f"run {self.run_id} is not over after {limit_s:g} s: {fate}"
            ) from None
        return await self._outcome(run_id, ending)

    async def _outcome(self, run_id: RunId, ending: Ending) -> R:
        codec = self._hosting.host.codec
        if ending.status is Status.COMPLETED:
            workflow = await self._definition(run_id)
            try:
                result: R = workflow.signature.unpack_result(codec, ending.payload or b"null")
            except NotDecodable as error:
                what = f"run {self.run_id!r} of {workflow.name!r}"
                raise unreadable_result(what, error) from error
            return result
        if ending.status is Status.CANCELLED:
            raise RunCancelled.of(self.run_id, ending.reason)
        raise decode_failure(codec, ending.payload, what=f"run {self.run_id!r}", kind=RunFailed)

    async def _definition(self, run_id: RunId) -> Program[..., R]:
        """What the run is of: the last one of a chain may be of another workflow, or version, than the first."""
        if run_id == self.run_id and self._workflow is not None:
            return self._workflow
        run = await self._row(run_id)
        workflow = self._hosting.host.programs.find(run.program, run.version)
        if workflow is None:
            raise UnknownName(
                f"run {run_id!r} is of program {run.program!r}, which is not registered here",
                "import the module that defines it",
            )
        return workflow

    async def _ending(self) -> tuple[RunId, Ending]:
        """Which run was the last, and how it ended."""
        run_id = self.run_id
        while (ending := await self._ending_of(run_id)).status is Status.CONTINUED:
            run_id = (await self._end()).run_id
        return run_id, ending

    async def _ending_of(self, run_id: RunId) -> Ending:
        require_own_loop(self._hosting)
        host = self._hosting.host
        while True:
            told = host.watchers.ending_of(run_id)
            try:
                # While this process has the run in memory it will be told; else only the store knows.
                ending = None
                if run_id not in host.residents:
                    ending = await self._stored_ending(run_id)
                if ending is None:
                    ending = await told
            finally:
                host.watchers.forget(run_id, told)
            if ending is not None:
                return ending

    async def _stored_ending(self, run_id: RunId) -> Ending | None:
        """How the run ended, if it has; raises if it waits for somebody to mend it."""
        run = await self._row(run_id)
        if run.status in TERMINAL:
            return await self._read_ending(run)
        self._parked = run.parked
        await require_unparked(self._store, run)
        return None

    async def _read_ending(self, run: Run) -> Ending:
        entries = await self._store.entries(run.run_id, run.seq - 1, run.seq)
        event = entries[-1].event if entries else None
        if not isinstance(event, Terminal):
            raise CorruptJournal(
                f"run {run.run_id!r} is {run.status}, but its last entry does not say so",
                "run `verify` to find what was changed",
            )
        return Ending.of(run.status, event)

    def _require_outside(self, what: str) -> None:
        """Inside a transaction there is nothing to wait for: what it starts begins when it is committed."""
        if current(self._hosting.host) is not None:
            raise NotCommitted(
                f"{what} of run {self.run_id!r} is asked for inside a transaction",
                "ask when the transaction is committed",
            )
        if self._joined is not None and not self._joined.may_be_committed:
            raise self._joined.not_committed(self.run_id)

    async def _row(self, run_id: RunId | None = None) -> Run:
        require_own_loop(self._hosting)
        try:
            return await stored_run(self._store, run_id or self.run_id)
        except UnknownRun:
            if self._joined is None:
                raise
            raise self._joined.not_committed(self.run_id) from None

    async def _end(self) -> Run:
        """The run that goes on, or has ended, for all of the chain."""
        run = await self._row()
        return (await self._store.chain_end(run.origin) or run) if _is_chained(run) else run

    async def status(self) -> RunStatus:
        """Where it stands: of a chain, where the last run does."""
        return _status_of(await self._end())

    async def runs(self) -> dict[RunId, RunStatus]:
        """The runs that continue each other, in their order: all but the last are `continued`."""
        run = await self._row()
        chain = await self._store.chain(run.origin) if _is_chained(run) else [run]
        return {each.run_id: _status_of(each) for each in chain}

    async def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - what it is
        """Send the run a signal; returns when it is durable.

        Two signals with the same `id` are one, so that a sender may try again: even when the run is over, if it has
        taken the first one in. With another value the second is refused with `SignalReused`.
        """
        sent = require_signal(signal)
        host = self._hosting.host
        sender = sender_of(host, id)
        payload = sent.encode(host.codec, value)
        end = await self._last_run()
        guid = signal_guid(end.origin, sent.name, sender)
        if id is not None:
            # A run that is over may have had it, or an earlier one of the chain: the last one does not know.
            what = f"signal {sent.name!r} with id {id!r} to run {self.run_id!r}"
            if await was_taken(host, Sending(end.origin, guid, payload, what, sent.of)):
                return
        self._require_open(end, f"take signal {signal.name!r}")
        await self._send(end, f"signal:{signal.name}", guid, payload)

    async def respond(
        self,
        step: str,
        value: object = None,
        *,
        code: int = OK,
        id: str | None = None,  # noqa: A002 - as in signal
    ) -> None:
        """Answer a step of a graph whose task responded with 202; returns when the answer is durable.

        `step` is its id, or the name of its activity if that is under way once. It goes on with `value`, and with code
        202 it stays open for more. An answer may come before the 202 does. Two with the same `id` are one, and
        with another value or code the second is refused with `SignalReused`. Of
        several final ones that are sent before the first is taken the others lead to nothing, and so does any to a task
        that ends without a 202.
        """
        host = self._hosting.host
        given = require_text("a step", step, MAX_STEP_BYTES)
        sender = sender_of(host, id)
        payload = host.codec.encode(value if code == OK else Response(value, code))
        run = await self._row()
        begun = begun_steps(await self._store.entries(run.run_id), host.codec)
        found = named_step(run.run_id, given, begun)
        guid = signal_guid(run.run_id, f"{RESPOND}@{found}", sender)
        if id is not None:
            what = f"an answer with id {id!r} to step {found!r} of run {run.run_id!r}"
            if await was_taken(host, Sending(run.run_id, guid, payload, what)):
                return
        end = await self._open_end(f"take an answer for step {found!r}")
        require_open(run.run_id, found, begun)
        await self._send(end, f"signal:{RESPOND}", guid, payload, found)

    async def waits(self) -> Waits:
        """What a run of a graph waits for: signals to topic and key, and more of what joins require."""
        return await waits_of(self._store, (await self._row()).run_id)

    async def cancel(self, reason: str = "") -> None:
        """Ask the run to stop; returns when that is durable. It cleans up first, and its children stop too."""
        text = require_text("the reason of a cancel", reason, MAX_PAYLOAD_BYTES // 4, 0)
        end = await self._open_end("be cancelled")
        await self._send(end, "cancel", cancel_guid(end.origin), text.encode())

    async def _open_end(self, what: str) -> Run:
        end = await self._last_run()
        self._require_open(end, what)
        return end

    async def _last_run(self) -> Run:
        """The run that goes on, or has ended, as the current transaction sees it."""
        require_own_loop(self._hosting)
        joined = current(self._hosting.host)
        return await (self._end() if joined is None else joined.end_of(self.run_id))

    def _require_open(self, end: Run, what: str) -> None:
        if end.status in TERMINAL:
            raise RunClosed(
                f"run {self.run_id!r} is {end.status} and can't {what}", "start another run"
            )

    async def _send(
        self, end: Run, kind: str, guid: Guid, payload: bytes, step: StepId | None = None
    ) -> None:
        """What is sent to a chain is named by its first run, so that it is one message, whenever it is sent."""
        host = self._hosting.host
        now, arrival = host.sources.now_ms(), host.sources.arrival(end.origin)
        message = Message(end.origin, guid, kind, now, arrival, step, payload)
        bundle = Bundle()
        bundle.enqueue(message)
        if end.chain is not None:
            bundle.forward(end.origin, guid, end.run_id)
        delivered = msgspec.structs.replace(message, run_id=end.run_id)
        joined = current(host)
        if joined is not None:
            await joined.send(bundle, delivered)
            return
        await self._store.commit(bundle)
        if end.owner == host.host_id:
            self._hosting.poller.sent(delivered)

    async def events(self, first: int = 0) -> AsyncIterator[Entry]:
        """The run's entries from number `first` on, and each new one when it is durable, to the last.

        Those of a chain follow each other: each `RunContinued` is followed by the `ExecutionStarted` of the next
        run. `first` counts through all of them, while `entry.seq` is an entry's number in its own run. Of a run that
        is parked the entries come, and then `RunDiverged` is raised.
        """
        self._require_outside("the journal")
        first = require_offset(first)
        run_id = (await self._row()).origin
        while True:
            run = await self._row(run_id)
            if run.status is not Status.CONTINUED or first < run.seq:
                async for entry in self._events_of(run_id, first):
                    yield entry
                run = await self._row(run_id)
            if run.status is not Status.CONTINUED:
                return
            first = max(0, first - run.seq)
            run_id = next_run_id(run_id)

    async def _events_of(self, run_id: RunId, first: int) -> AsyncIterator[Entry]:
        watchers = self._hosting.host.watchers
        grown = watchers.follow(run_id)
        try:
            while True:
                grown.clear()
                run = await self._row(run_id)
                for entry in await self._store.entries(run_id, first):
                    yield entry
                    first = entry.seq + 1
                if run.status in TERMINAL and first >= run.seq:
                    return
                await require_unparked(self._store, run)
                try:
                    async with asyncio.timeout(_POLL_S):
                        await grown.wait()
                except TimeoutError:
                    continue
        finally:
            watchers.unfollow(grown, run_id)

    async def published(self) -> dict[str, Any]:
        """The newest value of each name that the run published, or any run of its chain."""
        run = await self._row()
        if _is_chained(run):
            values = await self._store.published_in_chain(run.origin)
        else:
            values = await self._store.published(run.run_id)
        codec = self._hosting.host.codec
        return {name: codec.decode(payload, object) for name, payload in values.items()}

    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: Literal[True]
    ) -> AsyncGenerator[Chunk[T], None]: ...
    @overload  # a union, such as `str | None`, is no `type[T]`
    def stream(
        self, name: str, *, of: object = ..., start: int = 0, completed_only: Literal[True]
    ) -> AsyncGenerator[Chunk[Any], None]: ...
    @overload
    def stream(
        self, name: str, *, of: type[T], start: int = 0, completed_only: bool = False
    ) -> AsyncGenerator[Chunk[T] | Abandoned, None]: ...
    @overload
    def stream(
        self, name: str, *, of: object = ..., start: int = 0, completed_only: bool = False
    ) -> AsyncGenerator[Chunk[Any] | Abandoned, None]: ...
    def stream(
        self, name: str, *, of: Any = object, start: int = 0, completed_only: bool = False
    ) -> AsyncGenerator[Any, None]:
        """The chunks of a stream from offset `start` on, and each new one when it is durable, to the run's end.

        Chunks come as `of`, in the order of their offsets, each once, those of a running task at once; an `Abandoned`
        takes back what turned out not to count, from before `start` too. With `completed_only` a chunk
        comes when it counts for good, and nothing is taken back. Of runs that continue each other the streams
        follow each other, and offsets are counted through. Of a run that is parked the chunks come, and then
        `RunDiverged` is raised.
        """
        self._require_outside(f"stream {name!r}")
        reader = StreamReader(self._hosting, self._row, name, of)
        return reader.read(require_offset(start), completed_only=completed_only)


def _is_chained(run: Run) -> bool:
    """Whether it continues a run, or one continues it."""
    return run.chain is not None or run.status is Status.CONTINUED


def _status_of(run: Run) -> RunStatus:
    if run.parked is not None and run.status not in TERMINAL:
        diverged = run.parked.startswith(RunDiverged.code)
        return RunStatus.DIVERGED if diverged else RunStatus.PARKED
    return RunStatus(run.status.value)
