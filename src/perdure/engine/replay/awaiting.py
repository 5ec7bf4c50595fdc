"""What a run waits for, as its journal says it."""

from collections.abc import Sequence
from typing import Any

from perdure.authoring.context import Wait
from perdure.core.journal.events import AwaitKind, AwaitSignal, ExecutionAwaiting
from perdure.engine.replay.promise import Place


def await_of(waits: Sequence[Wait]) -> ExecutionAwaiting:
    """That of the one coroutine that waits for something outside, or any of all of them.

    A coroutine that waits for a branch waits for what the branch waits for.
    """
    if len(waits) == 1 and waits[0].kind is AwaitKind.SINGLE:  # as most are
        return ExecutionAwaiting((waits[0].promises[0].step,))
    blocking = []
    for wait in waits:
        leaves = [
            promise
            for promise in wait.promises
            if not promise.is_settled and promise.place is not Place.BRANCH
        ]
        if leaves:
            blocking.append((leaves, wait.kind))
    if len(blocking) == 1:
        return _await(*blocking[0])
    every = dict.fromkeys(promise.step for leaves, _ in blocking for promise in leaves)
    return ExecutionAwaiting(tuple(every), AwaitKind.ANY)


def _await(leaves: Sequence[Any], kind: AwaitKind) -> ExecutionAwaiting:
    signal = None
    if kind is AwaitKind.SIGNAL:
        signal = AwaitSignal(leaves[0].operation.signal.name, leaves[0].step)
    return ExecutionAwaiting(tuple([promise.step for promise in leaves]), kind, signal)
