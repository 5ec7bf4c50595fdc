"""Concurrent operations: wait for all, for the first, or take each as it completes."""

from collections.abc import Awaitable, Sequence
from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

from perdure.authoring.call import BranchOperation, DurableOperation, discard, operation
from perdure.authoring.context import Promise, Suspension, WorkflowContext, workflow_context
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
    """The results of all awaitables, in the order given.

    Waits until all have ended, so that no outcome is lost. Then raises the first failure in the order given, or, with
    `return_exceptions=True`, returns the exceptions in place of the results.
    """
    _, promises = _begin(awaitables, "perdure.gather")
    if promises:
        await Suspension(promises, AwaitKind.ALL)
    if return_exceptions:
        return tuple([_result_or_failure(promise) for promise in promises])
    return tuple([promise.outcome() for promise in promises])


def _result_or_failure(promise: Promise) -> Any:
    try:
        return promise.outcome()
    except Exception as error:  # the caller asked for exceptions as results
        return error


@overload
async def first(a: Awaitable[A], b: Awaitable[B], /) -> A | B: ...
@overload
async def first(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> A | B | C: ...
@overload
async def first(*awaitables: Awaitable[R]) -> R: ...
async def first(*awaitables: Awaitable[Any]) -> Any:
    """The outcome of the awaitable that ends first. The others are cancelled, and their coroutines have cleaned up.

    If one ends as it begins, for example because its signal was already received, the ones after it are not begun:
    they might consume signals, which would then be lost.
    """
    if not awaitables:
        raise InputError("perdure.first was given nothing", "pass at least one operation")
    context, promises = _begin(awaitables, "perdure.first", is_race=True)
    await Suspension(promises, AwaitKind.ANY)
    winner = next(promise for promise in promises if promise.is_settled)
    branches = context.abandon(promises)
    if branches:
        await Suspension(branches, AwaitKind.ALL)
    return winner.outcome()


def shield(awaitable: Awaitable[R]) -> DurableOperation[R]:
    """Protect an awaitable from cancellation of the run: `await perdure.shield(move(parcel))`.

    Takes a call or a coroutine of the workflow. Nothing in it is cancelled, including child runs. The code that awaits
    it gets its outcome; if the run was cancelled, the next operation of that code raises `Cancelled`.
    """
    try:
        workflow_context("perdure.shield")
        inner = operation(awaitable, "perdure.shield")
    except BaseException:
        discard(awaitable)
        raise
    coroutine = inner.coroutine if isinstance(inner, BranchOperation) else _shielded(inner)
    return BranchOperation(coroutine, is_shielded=True)


async def _shielded(inner: DurableOperation[R]) -> R:
    return await inner


def _begin(
    awaitables: Sequence[Awaitable[Any]], verb: str, *, is_race: bool = False
) -> tuple[WorkflowContext, tuple[Promise, ...]]:
    """Begin all awaitables; in a race, stop at one that ends at once.

    If the engine refuses one, those after it are discarded. If one is no durable operation, none is begun.
    """
    operations: list[DurableOperation[Any]] = []
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
    """Operations whose results are taken as they complete. The first await closes the set to new members."""

    def __init__(self) -> None:
        self._context = workflow_context("perdure.join_set")
        self._id = self._context.create_set()
        self._open: list[Promise] = []
        self._is_closed = False

    def __await__(self) -> NoReturn:
        raise InputError(
            f"join set {self._id} is awaited",
            "await members.next(), or write `async for result in members`",
        )

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
        """The outcome of the remaining member that ended first. Raises `StopAsyncIteration` if none remains."""
        self._is_closed = True
        if not self._open:
            raise StopAsyncIteration
        await Suspension(tuple(self._open), AwaitKind.ANY)
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
        """The number of members whose outcome has not been taken."""
        return len(self._open)


def join_set() -> JoinSet[Any]:
    """A new join set: submit operations, then `async for` their results as they complete."""
    return JoinSet()
