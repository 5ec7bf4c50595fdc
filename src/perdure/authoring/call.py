"""Operations: what a workflow can await, gather, race or submit. A `Call` is one of them."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.authoring.context import WORKFLOW, Wait, workflow_context
from perdure.core.errors import CallReused, ForeignAwait
from perdure.core.journal.events import AwaitKind

if TYPE_CHECKING:
    from perdure.authoring.definition import Definition

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_SINGLE = AwaitKind.SINGLE


class Operation(Generic[R_co]):
    """Something durable, not begun yet. It gets its id when it is awaited or submitted."""

    __slots__ = ()

    verb = "await"
    kind = _SINGLE

    @property
    def called(self) -> str:
        """What the program called to make it, as it may be written."""
        return self.verb

    def __await__(self) -> Generator[Any, Any, R_co]:
        promise = workflow_context(self.verb).begin(self)
        if not promise.is_settled:
            yield Wait((promise,), self.kind)
        result: R_co = promise.outcome()
        return result


class Call(Operation[R_co]):
    """A call of a task or a workflow, with its arguments, not begun yet."""

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
            yield Wait((promise,), _SINGLE)
        result: R_co = promise.outcome()
        return result

    @property
    def called(self) -> str:
        return self.definition.name

    def use(self) -> None:
        """Mark it as begun; a second time is refused."""
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
        # A workflow's own calls are looked after by its engine.
        if not getattr(self, "is_used", True) and WORKFLOW.get() is None:
            warnings.warn(f"{self!r} was never awaited", RuntimeWarning, 2, source=self)


class Sleep(Operation[None]):
    """Wait for a time."""

    __slots__ = ("duration_ms",)

    verb = "perdure.sleep"

    def __init__(self, duration_ms: int) -> None:
        self.duration_ms = duration_ms


class Branch(Operation[R_co]):
    """A coroutine of the workflow that runs beside it, on ids of its own."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, R_co]) -> None:
        self.coroutine = coroutine

    @property
    def name(self) -> str:
        return getattr(self.coroutine, "__qualname__", "branch").rpartition(".")[2]


def operation(given: Awaitable[R], verb: str) -> Operation[R]:
    """What `verb` was given, as an operation."""
    if isinstance(given, Call):  # as most are
        return given
    if isinstance(given, Operation):
        return given.branched() if isinstance(given, Composite) else given
    if isinstance(given, CoroutineType):
        return Branch(given)
    raise ForeignAwait(
        f"{verb} was given {given!r}",
        "pass calls of tasks and workflows, perdure's verbs, or coroutines of the workflow",
    )


def made(operation: Operation[R]) -> Operation[R]:
    """The operation that a verb makes. A workflow that never awaits it is told so."""
    context = WORKFLOW.get()
    if context is not None:
        context.made(operation)
    return operation


def _used(operation: Operation[Any]) -> None:
    context = WORKFLOW.get()
    if context is not None:
        context.used(operation)


def discard(given: object) -> None:
    """Whoever was given this refused it, and said so: nobody will await it."""
    if isinstance(given, Call):
        given.is_used = True
    elif isinstance(given, Branch):
        given.coroutine.close()
    elif isinstance(given, Operation):
        _used(given)
    elif isinstance(given, CoroutineType):
        given.close()


class Composite(Operation[R_co], ABC):
    """An operation that takes several places; among others it runs as a branch."""

    __slots__ = ()

    def branched(self) -> Branch[R_co]:
        _used(self)
        return Branch(self.run())

    @abstractmethod
    async def run(self) -> R_co:
        """What it does, as a coroutine of the workflow."""

    def __await__(self) -> Generator[Any, Any, R_co]:
        _used(self)
        return self.run().__await__()
