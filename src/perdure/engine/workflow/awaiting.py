"""What a workflow run waits for, as an event of its journal."""

from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Suspension
from perdure.authoring.signal import Receive
from perdure.core.ids import StepId
from perdure.core.journal.events import AwaitKind, AwaitSignal, ExecutionAwaiting
from perdure.engine.runs.promise import PromiseKind


def await_of(waits: Sequence[Suspension]) -> ExecutionAwaiting:
    """The wait of the one coroutine that waits for a step, or ANY of the steps if several coroutines wait.

    A coroutine that waits for a branch waits for what the branch waits for.
    """
    blocking = []
    for wait in waits:
        leaves = [
            promise
            for promise in wait.promises
            if not promise.is_settled and promise.kind is not PromiseKind.BRANCH
        ]
        if leaves:
            blocking.append((leaves, wait.kind))
    if len(blocking) == 1:
        return _await(*blocking[0])
    every = dict.fromkeys(promise.step for leaves, _ in blocking for promise in leaves)
    signals = tuple(each for wait in blocking for each in _signals(*wait))
    return ExecutionAwaiting(tuple(every), AwaitKind.ANY, signals or None)


def _await(leaves: Sequence[Any], kind: AwaitKind) -> ExecutionAwaiting:
    steps = tuple([promise.step for promise in leaves])
    if kind is AwaitKind.SIGNAL:
        signal = _awaited(leaves[0], None)
        return ExecutionAwaiting(steps, kind, signal)
    return ExecutionAwaiting(steps, kind, _signals(leaves, kind) or None)


def _signals(leaves: Sequence[Any], kind: AwaitKind) -> tuple[AwaitSignal, ...]:
    """The signals among what a coroutine waits for, so that a reader of the journal has their names.

    ANY of one signal and one timer is a wait with a timeout.
    """
    kinds = [promise.kind for promise in leaves]
    is_limited = kind is AwaitKind.ANY and kinds == [PromiseKind.SIGNAL, PromiseKind.TIMER]
    timer = leaves[1].step if is_limited else None
    return tuple(
        [_awaited(promise, timer) for promise in leaves if promise.kind is PromiseKind.SIGNAL]
    )


def _awaited(promise: Any, timer: StepId | None) -> AwaitSignal:
    receive: Receive[Any] = promise.operation
    name, prompt = receive.signal.name, receive.prompt
    if prompt is None:
        return AwaitSignal(name, promise.step, timer)
    return AwaitSignal(name, promise.step, timer, *prompt, receive.signal.schema)
