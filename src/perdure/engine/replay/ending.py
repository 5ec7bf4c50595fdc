"""How a run ends: its terminal event, and the word to its parent."""

from typing import TYPE_CHECKING, Any

from perdure.authoring.failures import encode_failure
from perdure.authoring.interruption import Cancelled, Continued
from perdure.core.errors import NeverAwaited, PerdureError, RunCancelled
from perdure.core.journal import events as e
from perdure.core.messages import Message
from perdure.core.replay.identity import parse_parent, result_guid
from perdure.engine.replay.continuing import go_on
from perdure.engine.replay.effects import Effect, Enqueue

if TYPE_CHECKING:
    from perdure.engine.machine import RunMachine
    from perdure.engine.replay.machine import Machine


def end(machine: "Machine", value: Any, error: BaseException | None) -> None:
    """The body returned or raised, and nothing that it began is open."""
    forgotten = machine.unawaited.disown()
    result = b""
    is_well = error is None or isinstance(error, Continued)
    if is_well and forgotten:
        error = NeverAwaited(
            f"workflow {machine.workflow.name!r} called {', '.join(forgotten)} and never awaited it",
            f"write `await {forgotten[0]}(...)`",
        )
    elif is_well and machine.left:
        error = NeverAwaited(
            f"workflow {machine.workflow.name!r} left {machine.left[0]!r} before its end, "
            "and what it does in `finally` was never awaited",
            "use `async with contextlib.aclosing(...)` around it",
        )
    if error is None:
        try:
            result = machine.workflow.pack_result(machine.codec, value)
        except PerdureError as refusal:
            error = refusal
    if error is None:
        tell = tell_parent(machine, "completed", result)
        machine.record.emit(e.ExecutionCompleted(payload=result, released=1), *tell)
    elif isinstance(error, Continued):
        go_on(machine, error)
    elif isinstance(error, Cancelled) and machine.cancel_reason is not None:
        reason = machine.cancel_reason
        cancelled = RunCancelled.of(machine.info.run_id, reason)
        tell = tell_parent(machine, "gave-up", encode_failure(machine.codec, cancelled))
        machine.record.emit(e.ExecutionCancelled(reason=reason, released=1), *tell)
    else:
        failure = encode_failure(machine.codec, error)
        tell = tell_parent(machine, "gave-up", failure)
        machine.record.emit(e.ExecutionFailed(payload=failure, released=1), *tell)


def tell_parent(machine: "RunMachine", kind: str, payload: bytes) -> tuple[Effect, ...]:
    """The word to whoever started it as a child."""
    if machine.parent is None:
        return ()
    run_id, step = parse_parent(machine.parent)
    now = machine.sources.now_ms()
    guid = result_guid(run_id, step, 1)
    return (Enqueue(Message(run_id, guid, kind, now, now, step, payload)),)
