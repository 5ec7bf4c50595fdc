"""Handles: one run, or a chain of runs that continue each other, as one object."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, Literal, Self, TypeVar, overload

import msgspec

from perdure.authoring.durations import Duration, milliseconds
from perdure.authoring.program import Program
from perdure.authoring.response import OK, Response
from perdure.authoring.signal import Signal, require_signal
from perdure.authoring.texts import require_user_text
from perdure.authoring.values.failures import decode_failure
from perdure.authoring.values.result_types import unreadable_result
from perdure.client.caller_checks import require_own_loop
from perdure.client.large import encode_message
from perdure.client.runs.answerable_steps import answerable_steps, find_step, require_answerable
from perdure.client.runs.asking import Asking
from perdure.client.runs.description import describe_run
from perdure.client.runs.erased_results import require_result
from perdure.client.runs.explaining import explain_run
from perdure.client.runs.forks import Forks
from perdure.client.runs.history import HistoryMethods, HistoryReader
from perdure.client.runs.rows import advancing, require_consistent, require_run, require_unparked
from perdure.client.runs.status import RunStatus, status_of
from perdure.client.runs.streams import Abandoned, Chunk, StreamReader, require_offset
from perdure.client.runs.waits import Waits, waits_by_kind
from perdure.client.signals import OutgoingSignal, require_signal_size, sender_of, was_delivered
from perdure.core.errors import (
    CorruptJournal,
    NotCommitted,
    NotDecodable,
    RunCancelled,
    RunClosed,
    RunFailed,
    UnknownName,
    UnknownRun,
    UnreadableProgram,
)
from perdure.core.graph.identity import RESPOND
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import TERMINAL, Status
from perdure.core.limits import MAX_STEP_BYTES
from perdure.core.messages import AT_ONCE, Message
from perdure.core.replay.identity import next_run_id, signal_guid
from perdure.core.runs.description import Description
from perdure.core.runs.explaining import Explanation
from perdure.host.host import Host
from perdure.host.transactions.joining import JoinedWrites, current
from perdure.host.watchers import RunEnding
from perdure.store.commit.bundle import Bundle
from perdure.store.rows.records import Run

R = TypeVar("R")
T = TypeVar("T")


class Handle(HistoryMethods, Forks, Asking, Generic[R]):
    """A run. Any process with the same store can have a handle of it.

    A handle of a run in a chain stands for the whole chain, whichever run it names: events and streams begin with the
    first run, and state, result and messages are those of the last run.
    """

    def __init__(
        self,
        host: Host,
        run_id: RunId,
        program: Program[..., R] | None = None,
        joined: JoinedWrites | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self.run_id = run_id
        self.is_new = is_new
        """Whether the start that returned this handle began the run. False if another run held the key."""
        self._host = host
        self._dispatcher = host.dispatcher
        self._store = host.dispatcher.store
        self._program = program
        self._joined = joined
        """The transaction that started the run."""
        self._parked: str | None = None
        """Why the run was parked, when `result` last read its row."""

    def __repr__(self) -> str:
        return f"<Handle {self.run_id}>"

    def _like(self, run_id: RunId) -> Self:
        return type(self)(self._host, run_id, self._program)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - its users expect it
        """Wait for the run to end and return its result, or raise `RunFailed` or `RunCancelled`.

        Raises `TimeoutError` if the run is not over in time. The run continues, and you can call `result` again.
        """
        self._require_no_transaction("the result")
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
            state = "it continues, ask again later" if parked is None else f"it is parked: {parked}"
            raise TimeoutError(
                f"run {self.run_id} is not over after {limit_s:g} s: {state}"
            ) from None
        return await self._outcome(run_id, ending)

    async def _outcome(self, run_id: RunId, ending: RunEnding) -> R:
        codec, payloads = self._dispatcher.codec, self._dispatcher.context.payloads
        if payloads is not None:
            await payloads.prefetch((ending.payload,))
        if ending.status is Status.COMPLETED:
            program = await self._find_program(run_id)
            await require_result(self._dispatcher.store, run_id, ending.payload)
            try:
                result: R = program.signature.unpack_result(codec, ending.payload or b"null")
            except NotDecodable as error:
                what = f"run {self.run_id!r} of {program.name!r}"
                raise unreadable_result(what, error) from error
            return result
        if ending.status is Status.CANCELLED:
            raise RunCancelled.of(self.run_id, ending.reason)
        what, module = f"run {self.run_id!r}", await self._program_module(run_id)
        raise decode_failure(codec, ending.payload, what=what, kind=RunFailed, home=module)

    async def _program_module(self, run_id: RunId) -> str | None:
        """The module that defines the run's program; `None` if this process does not have it."""
        try:
            return (await self._find_program(run_id)).fn.__module__
        except (UnknownName, UnreadableProgram):
            return None

    async def _find_program(self, run_id: RunId) -> Program[..., R]:
        """The program of the run. The last run of a chain may have another program or version than the first."""
        if run_id == self.run_id and self._program is not None:
            return self._program
        run = await self._row(run_id)
        program = self._dispatcher.programs.find(run.program, run.version)
        if program is None:
            raise UnknownName(
                f"run {run_id!r} is of program {run.program!r}, which is not registered here",
                "import the module that defines it",
            )
        return program

    async def _ending(self) -> tuple[RunId, RunEnding]:
        """Wait for the chain to end. Returns its last run, and how that ended."""
        run_id = self.run_id
        while (ending := await self._ending_of(run_id)).status is Status.CONTINUED:
            run_id = (await self._chain_end()).run_id
        return run_id, ending

    async def _ending_of(self, run_id: RunId) -> RunEnding:
        require_own_loop(self._host)
        dispatcher = self._dispatcher
        while True:
            notified = dispatcher.watchers.ending_of(run_id)
            self._host.awaits(run_id)
            try:
                # The dispatcher notifies of the ending of a run that it advances. Any other run may have ended already,
                # and one that waits in memory may have a damaged row, for which no message is delivered.
                ending = None
                if advancing(self._host, run_id) is None:
                    ending = await self._stored_ending(run_id)
                if ending is None:
                    ending = await notified
            finally:
                dispatcher.watchers.forget(run_id, notified)
            if ending is not None:
                return ending

    async def _stored_ending(self, run_id: RunId) -> RunEnding | None:
        """How the run ended, if it has. Raises `RunDiverged` if it is parked and does not resume by itself."""
        run = await self._row(run_id)
        if run.parked is None and run.status in TERMINAL:
            return await self._read_ending(run)
        self._parked = run.parked
        await require_unparked(self._store, run)
        require_consistent(run)
        return None

    async def _read_ending(self, run: Run) -> RunEnding:
        entries = await self._store.entries(run.run_id, run.seq - 1, run.seq)
        return RunEnding.read(run, entries[-1] if entries else None)

    def _require_no_transaction(self, what: str) -> None:
        """Raise inside a transaction: runs that it starts begin only when it commits."""
        if current(self._dispatcher) is not None:
            raise NotCommitted(
                f"{what} of run {self.run_id!r} is asked for inside a transaction",
                "ask when the transaction is committed",
            )
        if self._joined is not None and not self._joined.may_be_committed:
            raise self._joined.not_committed(self.run_id)

    async def _row(self, run_id: RunId | None = None) -> Run:
        """The row of a run; without an id, of the handle's run."""
        require_own_loop(self._host)
        takeovers = self._host.takeovers.ended
        try:
            run = await require_run(self._store, run_id or self.run_id)
        except UnknownRun:
            if self._joined is None:
                raise
            raise self._joined.not_committed(self.run_id) from None
        return await self._after_takeover(run, takeovers)

    async def _after_takeover(self, run: Run, takeovers: int) -> Run:
        """The row of a run, read again if this host takes the run over now or has done so since the first read.

        Without that, the row could show the state that a dead host left. `takeovers` is the number of takeovers that
        had ended before the first read.
        """
        takeover = self._host.takeovers
        if current(self._dispatcher) is not None:
            return run  # on SQLite the takeover would wait for the end of this transaction
        is_outdated = takeover.ended != takeovers
        if await takeover.take_over_now(run) or is_outdated:
            return await require_run(self._store, run.run_id)
        return run

    async def _chain_end(self) -> Run:
        """The last run of the chain."""
        run, takeovers = await self._row(), self._host.takeovers.ended
        end = await self._store.chain_end(run.origin) if _is_chained(run) else None
        return run if end is None else await self._after_takeover(end, takeovers)

    async def status(self) -> RunStatus:
        """The status of the run; of a chain, that of its last run.

        Raises `CorruptJournal`, as `result` does, if the row of the run contradicts itself or the end of its journal,
        unless this host advances the run: its next commit writes the row again.
        """
        end = await self._chain_end()
        try:
            if end.parked is None and end.status in TERMINAL:
                await self._read_ending(end)
            elif end.parked is None:
                require_consistent(end)
        except CorruptJournal:
            run = advancing(self._host, end.run_id)
            if run is None or run.fence.epoch != end.epoch:
                raise
            return RunStatus(run.journal.state.status.value)
        return status_of(end)

    async def runs(self) -> dict[RunId, RunStatus]:
        """The runs of the chain, in their order: all but the last are `continued`."""
        run = await self._row()
        chain = await self._store.chain(run.origin) if _is_chained(run) else [run]
        return {each.run_id: status_of(each) for each in chain}

    async def signal(self, signal: Signal[T], value: T, *, id: str | None = None) -> None:  # noqa: A002 - what it is
        """Send the run a signal; returns when it is durable.

        Two signals with the same `id` are one, so that a sender may safely repeat it, even after the end of a run that
        has received it. With another value the second is refused with `SignalReused`.
        """
        sent = require_signal(signal)
        dispatcher = self._dispatcher
        sender = sender_of(dispatcher, id)
        payload = await encode_message(
            dispatcher.context, self.run_id, lambda codec: sent.encode(codec, value)
        )
        require_signal_size(dispatcher.context, payload)
        end = await self._receiver()
        guid = signal_guid(end.origin, sent.name, sender)
        if id is not None:
            # A run that is over may have received it, or an earlier run of the chain.
            what = f"signal {sent.name!r} with id {id!r} to run {self.run_id!r}"
            outgoing = OutgoingSignal(end.origin, guid, payload, what, sent.of)
            if await was_delivered(dispatcher, outgoing):
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
        """Answer a step of a graph whose task responds with 202; returns when the answer is durable.

        `step` is the id of the step, or the name of its activity if that has one open step. The step continues with
        `value`; with code 202 it stays open for further answers. An answer may arrive before the task's 202.

        Two answers with the same `id` are one; with another value or code the second is refused with `SignalReused`.
        If several final answers are sent before the run receives the first, the others have no effect. An answer to a
        task that ends without a 202 has none either.
        """
        dispatcher = self._dispatcher
        given = require_user_text("a step", step, MAX_STEP_BYTES)
        sender = sender_of(dispatcher, id)
        codec = dispatcher.context.caller_codec
        payload = codec.encode(value if code == OK else Response(value, code))
        require_signal_size(dispatcher.context, payload)
        run = await self._row()
        steps = answerable_steps(await self._store.entries(run.run_id), dispatcher.codec)
        found = find_step(run.run_id, given, steps)
        guid = signal_guid(run.run_id, f"{RESPOND}@{found}", sender)
        if id is not None:
            what = f"an answer with id {id!r} to step {found!r} of run {run.run_id!r}"
            if await was_delivered(dispatcher, OutgoingSignal(run.run_id, guid, payload, what)):
                return
        end = await self._open_receiver(f"take an answer for step {found!r}")
        require_answerable(run.run_id, found, steps)
        await self._send(end, f"signal:{RESPOND}", guid, payload, found)

    async def waits(self) -> Waits:
        """What the run waits for, by kind: signals, timers, tasks, retries, child runs; in a graph also joins."""
        return waits_by_kind(await self.describe())

    async def describe(self) -> Description:
        """The state of the run and what it waits for; of a chain, those of the last run. `print` shows it as text.

        It reads the store alone: the run's host may be down, and this process need not have the run's code.
        """
        self._require_no_transaction("the state")
        end = await self._chain_end()
        return await describe_run(self._dispatcher, end.run_id, status_of)

    async def explain(self) -> Explanation:
        """Why the run does not move, what happens next by itself, and the command that moves it. `print` shows it.

        It reads the store alone, as `describe` does. A host on another machine is watched for a heartbeat, for seconds.
        """
        self._require_no_transaction("the state")
        end = await self._chain_end()
        return await explain_run(self._dispatcher, end.run_id, status_of)

    async def _open_receiver(self, what: str) -> Run:
        end = await self._receiver()
        self._require_open(end, what)
        return end

    async def _receiver(self) -> Run:
        """The run that receives messages to this handle: the last of the chain, as the current transaction sees it."""
        require_own_loop(self._host)
        joined = current(self._dispatcher)
        return await (self._chain_end() if joined is None else joined.end_of(self.run_id))

    def _require_open(self, end: Run, what: str) -> None:
        if end.status in TERMINAL:
            raise RunClosed(
                f"run {self.run_id!r} is {end.status} and can't {what}", "start another run"
            )

    async def _send(
        self, end: Run, kind: str, guid: Guid, payload: bytes, step: StepId | None = None
    ) -> None:
        """Commits: a message to the chain, forwarded to its last run.

        The message is addressed to the first run, so that it has the same identity whenever it is sent.
        """
        dispatcher = self._dispatcher
        arrival = dispatcher.sources.arrival(end.origin)
        message = Message(end.origin, guid, kind, AT_ONCE, arrival, step, payload)
        bundle = Bundle()
        bundle.enqueue(message)
        if end.chain is not None:
            bundle.forward(end.origin, guid, end.run_id)
        delivered = msgspec.structs.replace(message, run_id=end.run_id)
        joined = current(dispatcher)
        if joined is not None:
            await joined.send(bundle, delivered)
            return
        await self._store.commit(bundle)
        self._host.message_sent(delivered, end.owner)

    async def events(self, first: int = 0, *, follow: bool = True) -> AsyncIterator[Entry]:
        """Yield the run's entries from number `first` on, and each new one when it is durable, to the end of the run.

        Without `follow` it stops after the entries that are durable now.

        The journals of a chain follow each other: after a `RunContinued` comes the `ExecutionStarted` of the next run.
        `first` counts entries through the whole chain, while `entry.seq` is an entry's number in its own run. For a
        parked run it yields all entries and then raises `RunDiverged`.
        """
        self._require_no_transaction("the journal")
        first = require_offset(first)
        run_id = (await self._row()).origin
        while True:
            run = await self._row(run_id)
            if run.status is not Status.CONTINUED or first < run.seq:
                async for entry in self._events_of(run_id, first, follow=follow):
                    yield entry
                run = await self._row(run_id)
            if run.status is not Status.CONTINUED:
                return
            first = max(0, first - run.seq)
            run_id = next_run_id(run_id)

    async def _events_of(self, run_id: RunId, first: int, *, follow: bool) -> AsyncIterator[Entry]:
        watchers = self._dispatcher.watchers
        grown = watchers.follow(run_id)
        self._host.follows(run_id)
        try:
            while True:
                grown.clear()
                run = await self._row(run_id)
                for entry in await self._store.entries(run_id, first):
                    yield entry
                    first = entry.seq + 1
                if not follow or (run.status in TERMINAL and first >= run.seq):
                    return
                await require_unparked(self._store, run)
                await grown.wait()
        finally:
            watchers.unfollow(grown, run_id)

    def _history(self, what: str) -> HistoryReader:
        self._require_no_transaction(what)
        return HistoryReader(self._host, self._row)

    async def published(self) -> dict[str, Any]:
        """The newest value of each name that the runs of the chain have published."""
        run = await self._row()
        if _is_chained(run):
            values = await self._store.published_in_chain(run.origin)
        else:
            values = await self._store.published(run.run_id)
        codec = self._dispatcher.codec
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
        """Yield the chunks of a stream from offset `start` on, and each new one when it is durable, to the run's end.

        Values are decoded as `of`. Each chunk comes once, in the order of offsets, and before its task has ended. An
        `Abandoned` withdraws chunks of an attempt that was abandoned, also chunks before `start`. With `completed_only`
        a chunk comes only after its attempt has completed, and none is withdrawn.

        The streams of a chain follow each other, and offsets count through the whole chain. For a parked run it yields
        all chunks and then raises `RunDiverged`.
        """
        self._require_no_transaction(f"stream {name!r}")
        reader = StreamReader(self._host, self._row, name, of)
        return reader.read(require_offset(start), completed_only=completed_only)


def _is_chained(run: Run) -> bool:
    """Whether the run continues another, or another continues it."""
    return run.chain is not None or run.status is Status.CONTINUED
