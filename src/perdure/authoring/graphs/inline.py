"""Runs a graph's function as plain Python, without engine or store."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from perdure.authoring.call import BranchOperation, Call, DurableOperation, Sleep
from perdure.authoring.context import WORKFLOW, Suspension, WorkflowContext
from perdure.authoring.definition import Definition
from perdure.authoring.graphs.asyncio_names import as_graph_means
from perdure.authoring.graphs.compiler.constants import is_plain
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.signal import Receive
from perdure.authoring.signature import Signature
from perdure.authoring.task import Task
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError, OutsideRun
from perdure.core.journal.events import AwaitKind

R = TypeVar("R")

_codec = JsonCodec()


async def inline(call: ProgramCall[R], *, signals: Iterable[tuple[str, Any]] = ()) -> R:
    """Run the function of a graph as plain Python, to try it out or to compare its result with a run's.

    Tasks run once where they are awaited, with their timeouts and without retries. Their arguments and results take a
    round trip through the codec, as with a store. Sleeps take real time. `signals` are the names and values of the
    signals to receive, in order.
    """
    instead = "pass a call of a graph function"
    if not isinstance(call, Call):
        raise InputError(f"{call!r} is no call", instead)
    call.use()
    program = call.definition
    if program.noun != "graph":
        raise InputError(f"{program.name!r} is a {program.noun}", instead)
    return cast("R", await _Inline(list(signals)).run(call))


class _Promised:
    """A running operation. Implements the part of `Promise` that compilable functions use."""

    def __init__(self, work: "asyncio.Future[Any]") -> None:
        self.work = work

    @property
    def is_settled(self) -> bool:
        return self.work.done()

    def outcome(self) -> Any:
        return self.work.result()


class _Inline:
    """Executes operations at once. Implements the part of `WorkflowContext` that compilable functions use."""

    def __init__(self, signals: list[tuple[str, Any]]) -> None:
        self._signals = signals
        self._outside = copy_context()
        """The context in which tasks run, so that verbs in tasks don't act on the graph."""

    def made(self, operation: DurableOperation[Any]) -> None:
        """Ignored: the compiler reports operations that are never awaited."""

    def used(self, operation: DurableOperation[Any]) -> None:
        """Ignored, as above."""

    def begin(self, operation: DurableOperation[Any]) -> _Promised:
        if isinstance(operation, Receive):
            return _Promised(self._received(operation.signal.name))
        work = asyncio.get_running_loop().create_task(
            self._done(operation), context=self._outside.copy()
        )
        work.add_done_callback(_retrieve)
        return _Promised(work)

    def abandon(self, promises: Sequence[_Promised]) -> tuple[()]:
        for promise in promises:
            promise.work.cancel()
        return ()

    def _received(self, name: str) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        for number, (sent, value) in enumerate(self._signals):
            if sent == name:
                del self._signals[number]
                future.set_result(value)
                break
        return future

    async def _done(self, operation: DurableOperation[Any]) -> Any:
        if isinstance(operation, Sleep):
            return await asyncio.sleep(operation.duration_ms / 1000)
        if isinstance(operation, BranchOperation):
            return await self._drive(operation.coroutine)
        if not isinstance(operation, Call):
            raise OutsideRun(f"{operation!r} is awaited outside a run", "start the graph")
        operation.use()
        definition = operation.definition
        if isinstance(definition, Program) and definition.noun == "graph":
            return await self.run(operation)
        call = Call(definition, definition.signature.restored(_codec, operation.arguments))
        call.use()
        if isinstance(definition, Program):
            return _restored(definition.signature, await self.run(call))
        result = await _in_time(definition, definition.run_outside(call))
        return _restored(definition.signature, result)

    async def run(self, call: Call[Any]) -> Any:
        """Drive the function of the call."""
        args, kwargs = call.definition.signature.arguments(call.arguments)
        return await self._drive(as_graph_means(call.definition.fn)(*args, **kwargs))

    async def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        context: Context = self._outside.copy()
        context.run(WORKFLOW.set, cast("WorkflowContext", self))
        try:
            while True:
                wait = context.run(coroutine.send, None)
                if not isinstance(wait, Suspension):
                    raise OutsideRun(f"{wait!r} is awaited in a graph", "await a task that does it")
                await _settled(wait)
        except StopIteration as stopped:
            return stopped.value
        finally:
            coroutine.close()


async def _in_time(task: Definition[..., Any], attempt: Coroutine[Any, Any, Any]) -> Any:
    """Run an attempt under the timeout of its task, as a host does."""
    if not isinstance(task, Task) or task.timeout_ms is None:
        return await attempt
    seconds = task.timeout_ms / 1000
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await attempt
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"task {task.name!r} took longer than {seconds:g} s") from error


def _restored(signature: Signature, result: Any) -> Any:
    """A result as a graph gets it, except that objects keep their type so that the function can read their fields."""
    payload = _codec.encode(result)
    if is_plain(result):
        return _codec.decode(payload, object)
    return signature.unpack_result(_codec, payload)


def _retrieve(work: "asyncio.Future[Any]") -> None:
    """Mark the exception as retrieved: if several operations fail, only one failure is raised."""
    if not work.cancelled():
        work.exception()


async def _settled(wait: Suspension) -> None:
    left = [promise.work for promise in wait.promises if not promise.is_settled]
    when = asyncio.FIRST_COMPLETED if wait.kind is AwaitKind.ANY else asyncio.ALL_COMPLETED
    if left:
        await asyncio.wait(left, return_when=when)
