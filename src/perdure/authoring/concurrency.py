"""Several operations at once: all of them, the first of them, or each as it comes."""

from collections.abc import Awaitable, Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from perdure.authoring.call import Operation, discard, operation
from perdure.authoring.context import Promise, Wait, WorkflowContext, workflow_context
from perdure.core.errors import InputError, JoinSetClosed
from perdure.core.journal.events import AwaitKind

R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


@overload
async def gather(a: Awaitable[A], /) -> tuple[A]: ...
@overload
async def gather(a: Awaitable[A], b: Awaitable[B], /) -> tuple[A, B]: ...
@overload
async def gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> tuple[A, B, C]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> tuple[A, B, C, D]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> tuple[A, B, C, D, E]: ...
@overload
async def gather(*awaitables: Awaitable[R]) -> tuple[R, ...]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], /, *, return_exceptions: Literal[True]
) -> tuple[A | Exception, B | Exception]: ...
@overload
async def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /, *, return_exceptions: Literal[True]
) -> tuple[A | Exception, B | Exception, C | Exception]: ...
@overload
async def gather(
    *awaitables: Awaitable[R], return_exceptions: Literal[True]
) -> tuple[R | Exception, ...]: ...
async def gather(*awaitables: Awaitable[Any], return_exceptions: bool = False) -> Any:
    """The results of all, in the order given.

    Waits until every one is over, so that nothing is left in the dark; then raises the first failure in
    that order, or returns the exceptions in place with `return_exceptions=True`.
    """
    _, promises = _begin(awaitables, "perdure.gather")
    if promises:
        await Wait(promises, AwaitKind.ALL)
    if return_exceptions:
        return tuple([_result_or_failure(promise) for promise in promises])
    return tuple([promise.outcome() for promise in promises])


def _result_or_failure(promise: Promise) -> Any:
    try:
        return promise.outcome()
    except Exception as error:  # handed to the caller, who asked for it
        return error


@overload
async def first(a: Awaitable[A], b: Awaitable[B], /) -> A | B: ...
@overload
async def first(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> A | B | C: ...
@overload
async def first(*awaitables: Awaitable[R]) -> R: ...
async def first(*awaitables: Awaitable[Any]) -> Any:
    """The outcome of whichever is over first. The others are cancelled; coroutines have cleaned up on return.

    If one is over as it begins, as a signal is that has come already, those behind it are not begun: else they would
    take signals that nobody gets.
    """
    if not awaitables:
        raise InputError("perdure.first was given nothing", "pass at least one operation")
    context, promises = _begin(awaitables, "perdure.first", is_race=True)
    await Wait(promises, AwaitKind.ANY)
    winner = next(promise for promise in promises if promise.is_settled)
    branches = context.abandon(promises)
    if branches:
        await Wait(branches, AwaitKind.ALL)
    return winner.outcome()


def _begin(
    awaitables: Sequence[Awaitable[Any]], verb: str, *, is_race: bool = False
) -> tuple[WorkflowContext, tuple[Promise, ...]]:
    """All of them begun; in a race, up to one that is over at once.

    If one is refused, so are those behind it; if it is not durable, so are all.
    """
    operations: list[Operation[Any]] = []
    promises: list[Promise] = []
    try:
        context = workflow_context(verb)
        operations.extend(operation(each, verb) for each in awaitables)
        for each in operations:
            promises.append(context.begin(each))
            if is_race and promises[-1].is_settled:
                break
    except BaseException:
        _discard(*operations[len(promises) :], *awaitables[len(operations) :])
        raise
    _discard(*operations[len(promises) :])
    return context, tuple(promises)


def _discard(*awaitables: Awaitable[Any]) -> None:
    for each in awaitables:
        discard(each)


class JoinSet(Generic[R]):
    """Operations whose results are taken as they come. Closed to new ones by the first await."""

    def __init__(self) -> None:
        self._context = workflow_context("perdure.join_set")
        self._id = self._context.create_set()
        self._open: list[Promise] = []
        self._is_closed = False

    def submit(self, awaitable: Awaitable[R]) -> None:
        """Begin an operation as a member of the set."""
        if self._is_closed:
            discard(awaitable)
            raise JoinSetClosed(
                f"join set {self._id} was awaited before",
                "submit everything first, or make another join set",
            )
        each = operation(awaitable, "JoinSet.submit")
        self._open.append(self._context.submit(self._id, each))

    async def next(self) -> R:
        """The outcome of the member that was over first among those left. Raises `StopAsyncIteration`
        when none is left."""
        self._is_closed = True
        if not self._open:
            raise StopAsyncIteration
        await Wait(tuple(self._open), AwaitKind.ANY)
        done = min((p for p in self._open if p.is_settled), key=lambda p: p.settled_at)
        self._open.remove(done)
        self._context.consume(self._id, done)
        result: R = done.outcome()
        return result

    def __aiter__(self) -> "JoinSet[R]":
        return self

    async def __anext__(self) -> R:
        return await self.next()

    def __len__(self) -> int:
        """How many members have not been taken yet."""
        return len(self._open)


def join_set() -> JoinSet[Any]:
    """A new join set: submit operations, then `async for` their results as they come."""
    return JoinSet()
