"""Durable operations: what a workflow can await, gather, race or submit to a join set. A `Call` is one."""

import warnings
from abc import ABC, abstractmethod
from asyncio import isfuture
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.authoring.context import WORKFLOW, Suspension, workflow_context
from perdure.core.errors import CallReused, ForeignAwait
from perdure.core.journal.events import AwaitKind

if TYPE_CHECKING:
    from perdure.authoring.definition import Definition

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_SINGLE = AwaitKind.SINGLE


class DurableOperation(Generic[R_co]):
    """A durable operation that has not begun. It gets its step id when it is awaited or submitted."""

    __slots__ = ()

    verb = "await"
    kind = _SINGLE

    @property
    def called(self) -> str:
        """The expression in the program that created it, for messages."""
        return self.verb

    def __await__(self) -> Generator[Any, Any, R_co]:
        context = WORKFLOW.get() or workflow_context(self.verb)
        promise = context.begin(self)
        if not promise.is_settled:
            yield Suspension((promise,), self.kind)
        result: R_co = promise.outcome()
        return result


class Call(DurableOperation[R_co]):
    """A call of a task or a program with its arguments, not begun yet."""

    __slots__ = ("arguments", "definition", "is_used")

    definition: "Definition[..., Any]"

    def __init__(self, definition: "Definition[..., R_co]", arguments: dict[str, Any]) -> None:
        self.definition = definition
        self.arguments = arguments
        self.is_used = False
        context = WORKFLOW.get()
        if context is not None:
            context.made(self)

    def __await__(self) -> Generator[Any, Any, R_co]:
        context = WORKFLOW.get()
        if context is None:
            self.use()
            outcome: R_co = yield from self.definition.run_outside(self).__await__()
            return outcome
        promise = context.begin(self)
        if not promise.is_settled:
            yield Suspension((promise,), _SINGLE)
        result: R_co = promise.outcome()
        return result

    @property
    def called(self) -> str:
        return self.definition.name

    def use(self) -> None:
        """Mark it as begun. Raises `CallReused` if it has begun before."""
        if self.is_used:
            raise CallReused(
                f"this Call of {self.definition.name!r} was awaited or started before",
                f"call {self.definition.name}(...) again for a second step",
            )
        self.is_used = True

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"<Call {self.definition.name}({inside})>"

    def __del__(self) -> None:
        # Inside a workflow the engine reports calls that are never awaited.
        if not getattr(self, "is_used", True) and WORKFLOW.get() is None:
            warnings.warn(f"{self!r} was never awaited", RuntimeWarning, 2, source=self)


class Sleep(DurableOperation[None]):
    """A durable timer."""

    __slots__ = ("duration_ms",)

    verb = "perdure.sleep"

    def __init__(self, duration_ms: int) -> None:
        self.duration_ms = duration_ms


class BranchOperation(DurableOperation[R_co]):
    """A coroutine of the workflow that runs concurrently with it, with its own subtree of step ids."""

    __slots__ = ("coroutine", "is_shielded")

    def __init__(self, coroutine: Coroutine[Any, Any, R_co], *, is_shielded: bool = False) -> None:
        self.coroutine = coroutine
        self.is_shielded = is_shielded
        """Whether it runs to completion even if the run is cancelled."""

    @property
    def name(self) -> str:
        return getattr(self.coroutine, "__qualname__", "branch").rpartition(".")[2]


def operation(given: Awaitable[R], verb: str) -> DurableOperation[R]:
    """The awaitable that was passed to `verb`, as an operation."""
    if isinstance(given, Call):  # the common case
        return given
    if isinstance(given, DurableOperation):
        return given.branched() if isinstance(given, Composite) else given
    if isinstance(given, CoroutineType):
        return BranchOperation(given)
    if isfuture(given):
        return BranchOperation(future(given))
    raise ForeignAwait(
        f"{verb} was given {given!r}",
        "pass calls of tasks and workflows, perdure's verbs, or coroutines of the workflow",
    )


async def future(awaited: Awaitable[R]) -> R:
    """A future or task of asyncio, as a branch; the function's name is the branch's."""
    return await awaited


def made(operation: DurableOperation[R]) -> DurableOperation[R]:
    """Register a new operation with the running workflow, which reports it if it is never awaited."""
    context = WORKFLOW.get()
    if context is not None:
        context.made(operation)
    return operation


def _used(operation: DurableOperation[Any]) -> None:
    context = WORKFLOW.get()
    if context is not None:
        context.used(operation)


def discard(given: object) -> None:
    """Mark an awaitable that a verb refused as used, so that it is not also reported as never awaited."""
    if isinstance(given, Call):
        given.is_used = True
    elif isinstance(given, BranchOperation):
        given.coroutine.close()
    elif isinstance(given, DurableOperation):
        _used(given)
    elif isinstance(given, CoroutineType):
        given.close()


class Composite(DurableOperation[R_co], ABC):
    """An operation of several steps. Gathered or raced with others it runs as a branch."""

    __slots__ = ()

    def branched(self) -> BranchOperation[R_co]:
        _used(self)
        return BranchOperation(self.run())

    @abstractmethod
    async def run(self) -> R_co:
        """The steps, as a coroutine of the workflow."""

    def __await__(self) -> Generator[Any, Any, R_co]:
        _used(self)
        return self.run().__await__()
