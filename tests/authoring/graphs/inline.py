"""Runs the plain function of a program without engine or store, each step in order."""

from collections.abc import Coroutine, Iterable
from typing import Any

from perdure.authoring.call import BranchOperation, Call, DurableOperation, Sleep
from perdure.authoring.context import WORKFLOW
from perdure.authoring.graphs.asyncio_names import as_graph_means
from perdure.authoring.signal import Receive


class Impossible(BaseException):
    """An operation that no program of the corpus uses, and that no handler takes."""


class Settled:
    """A promise with its outcome; or one that is never settled."""

    def __init__(self) -> None:
        self.is_settled = False
        self._value: Any = None
        self._error: Exception | None = None

    def outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.is_settled = True
        try:
            self._value = driven(coroutine)
        except Exception as error:  # raised when it is awaited
            self._error = error

    def keep(self, value: Any) -> None:
        self.is_settled = True
        self._value = value


class Inline:
    """The part of an engine that the verbs of graphs need."""

    def __init__(self, signals: Iterable[tuple[str, Any]]) -> None:
        self._signals = list(signals)

    def made(self, _operation: DurableOperation[Any]) -> None:
        pass

    def used(self, _operation: DurableOperation[Any]) -> None:
        pass

    def abandon(self, _promises: Iterable[Settled]) -> tuple[()]:
        return ()

    def begin(self, operation: DurableOperation[Any]) -> Settled:
        promise = Settled()
        if isinstance(operation, Call):
            operation.use()
            promise.run(_body(operation))
        elif isinstance(operation, BranchOperation):
            promise.run(operation.coroutine)
        elif isinstance(operation, Sleep):
            promise.keep(None)
        elif isinstance(operation, Receive):
            for number, (name, value) in enumerate(self._signals):
                if name == operation.signal.name:
                    del self._signals[number]
                    promise.keep(value)
                    break
        else:
            raise Impossible(f"no program of the corpus does {operation!r}")
        return promise


async def _body(call: Call[Any]) -> Any:
    args, kwargs = call.definition.signature.arguments(call.arguments)
    made = as_graph_means(call.definition.fn)(*args, **kwargs)
    return await made if isinstance(made, Coroutine) else made


def driven(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing: each operation is settled when it begins."""
    try:
        waiting = coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    coroutine.close()
    raise Impossible(f"{coroutine!r} waits for {waiting!r}, and nothing comes")


def run_inline(program: Any, kwargs: dict[str, Any], signals: Iterable[tuple[str, Any]]) -> Any:
    """What the plain function returns or raises."""
    token = WORKFLOW.set(Inline(signals))  # type: ignore[arg-type]
    try:
        return driven(as_graph_means(program.fn)(**kwargs))
    finally:
        WORKFLOW.reset(token)
