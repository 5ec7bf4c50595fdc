"""A graph's function as plain Python: no engine, no store. What it awaits runs here and now."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

from perdure.authoring.call import Branch, Call, Operation, Sleep
from perdure.authoring.context import WORKFLOW, Wait, WorkflowContext
from perdure.authoring.graphs.compiler.constants import is_plain
from perdure.authoring.program import Program, ProgramCall
from perdure.authoring.signal import Receive
from perdure.authoring.signature import Signature
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError, OutsideRun
from perdure.core.journal.events import AwaitKind

R = TypeVar("R")

_codec = JsonCodec()


async def inline(call: ProgramCall[R], *, signals: Iterable[tuple[str, Any]] = ()) -> R:
    """What the function of a graph returns or raises as plain Python: to try it out, and to compare.

    Tasks run where they are awaited, once, with no retries, and what they are given and return is as it comes from a
    store; sleeps sleep. `signals` are those that it will receive: names and values, in their order.
    """
    instead = "pass a call of a graph function"
    if not isinstance(call, Call):
        raise InputError(f"{call!r} is no call", instead)
    call.use()
    program = call.definition
    if not isinstance(program, Program) or program.noun != "graph":
        raise InputError(f"{program.name!r} is a {program.noun}", instead)
    return cast("R", await _Inline(list(signals)).run(call))


class _Promised:
    """Something under way. Implements `Promise`, as far as functions that compile need it."""

    def __init__(self, work: "asyncio.Future[Any]") -> None:
        self.work = work

    @property
    def is_settled(self) -> bool:
        return self.work.done()

    def outcome(self) -> Any:
        return self.work.result()


class _Inline:
    """What the verbs ask for, done at once. Implements `WorkflowContext` for those that compile."""

    def __init__(self, signals: list[tuple[str, Any]]) -> None:
        self._signals = signals
        self._outside = copy_context()
        """Where tasks run: no verb of theirs belongs to the graph."""

    def made(self, operation: Operation[Any]) -> None:
        """What is never awaited is found when the function is compiled."""

    def used(self, operation: Operation[Any]) -> None:
        """As above."""

    def begin(self, operation: Operation[Any]) -> _Promised:
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

    async def _done(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Sleep):
            return await asyncio.sleep(operation.duration_ms / 1000)
        if isinstance(operation, Branch):
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
        return _restored(definition.signature, await definition.run_outside(call))

    async def run(self, call: Call[Any]) -> Any:
        """The function that is called, driven here."""
        args, kwargs = call.definition.signature.arguments(call.arguments)
        return await self._drive(call.definition.fn(*args, **kwargs))

    async def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        context: Context = self._outside.copy()
        context.run(WORKFLOW.set, cast("WorkflowContext", self))
        try:
            while True:
                wait = context.run(coroutine.send, None)
                if not isinstance(wait, Wait):
                    raise OutsideRun(f"{wait!r} is awaited in a graph", "await a task that does it")
                await _settled(wait)
        except StopIteration as stopped:
            return stopped.value
        finally:
            coroutine.close()


def _restored(signature: Signature, result: Any) -> Any:
    """A result as a graph gets it; but what is more than plain data keeps its type, for the sake of its fields."""
    payload = _codec.encode(result)
    if is_plain(result):
        return _codec.decode(payload, object)
    return signature.unpack_result(_codec, payload)


def _retrieve(work: "asyncio.Future[Any]") -> None:
    """Of several failures one is raised: asyncio shall not complain of the others."""
    if not work.cancelled():
        work.exception()


async def _settled(wait: Wait) -> None:
    left = [promise.work for promise in wait.promises if not promise.is_settled]
    when = asyncio.FIRST_COMPLETED if wait.kind is AwaitKind.ANY else asyncio.ALL_COMPLETED
    if left:
        await asyncio.wait(left, return_when=when)
