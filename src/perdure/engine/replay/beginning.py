"""How each kind of operation begins: its place in the call tree, its events, what commits with them."""

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from perdure.authoring.call import Branch, Call, Operation, Sleep
from perdure.authoring.program import Program
from perdure.authoring.signal import Receive
from perdure.authoring.task import Task
from perdure.core.errors import DepthExceeded, ForeignAwait, NotEncodable, PayloadTooLarge
from perdure.core.journal import events as e
from perdure.core.limits import MAX_DEPTH, MAX_PAYLOAD_BYTES
from perdure.core.messages import Message, Work
from perdure.core.replay.identity import child_run_id, parent_address, result_guid, timer_guid
from perdure.engine.replay.effects import Enqueue, PutWork, Spawn
from perdure.engine.replay.errand import HEADER_ROOM, pack_errand
from perdure.engine.replay.fiber import Fiber
from perdure.engine.replay.promise import DurablePromise, Place

if TYPE_CHECKING:
    from perdure.engine.machine import RunMachine
    from perdure.engine.replay.machine import Machine


def begin(machine: "Machine", fiber: Fiber, operation: Operation[Any]) -> DurablePromise:
    """Schedule `operation` at the fiber's next place."""
    if isinstance(operation, Call):
        return _begin_call(machine, fiber, operation)
    if isinstance(operation, Sleep):
        return _begin_timer(machine, fiber, operation)
    if isinstance(operation, Receive):
        return _begin_receive(machine, fiber, operation)
    if isinstance(operation, Branch):
        return _begin_branch(machine, fiber, operation)
    raise ForeignAwait(f"{operation!r} is not durable", "await calls, or perdure's verbs")


def _begin_call(machine: "Machine", fiber: Fiber, call: Call[Any]) -> DurablePromise:
    definition = machine.use(call)
    is_queued = isinstance(definition, Task) and definition.queue is not None
    limit = MAX_PAYLOAD_BYTES - HEADER_ROOM if is_queued else MAX_PAYLOAD_BYTES
    payload = encode_arguments(machine, call, limit)
    if not isinstance(definition, Task):
        return _begin_child(machine, fiber, call, payload)
    place = Place.QUEUED if is_queued else Place.LOCAL
    promise = machine.promise(fiber, place, call)
    promise.input = payload
    scheduled = e.InvokeScheduled(
        promise.step, definition.name, definition.kind, definition.policy, payload=payload
    )
    if place is Place.QUEUED:
        work = work_of(machine, promise, 1, machine.sources.now_ms())
        machine.record.emit(scheduled, PutWork(work))
    else:
        machine.record.emit(scheduled)
        if not machine.record.is_replaying:
            # Else whoever replays the run finds out what is left to start.
            machine.unstarted.append(promise)
    return promise


def encode_arguments(machine: "Machine", call: Call[Any], limit: int = MAX_PAYLOAD_BYTES) -> bytes:
    """The arguments as a payload; an error names what was called."""
    try:
        return machine.codec.encode(call.arguments, limit=limit)
    except (NotEncodable, PayloadTooLarge) as error:
        what = f"an argument of {call.definition.noun} {call.definition.name!r}: {error.what}"
        raise type(error)(what, error.remedy) from None


def work_of(
    machine: "RunMachine", promise: DurablePromise, attempt: int, available_at_ms: int
) -> Work:
    """One attempt of a task, for its queue."""
    task = promise.task
    run_id, step = machine.info.run_id, promise.step
    return Work(
        run_id,
        step,
        result_guid(run_id, step, attempt),
        task.queue or "",
        available_at_ms,
        task.priority,
        pack_errand(task, attempt, promise.doubts, promise.stops, machine.info, promise.input),
    )


def _begin_child(
    machine: "Machine", fiber: Fiber, call: Call[Any], payload: bytes
) -> DurablePromise:
    workflow = call.definition
    assert isinstance(workflow, Program)  # noqa: S101 - for the type checker
    promise = machine.promise(fiber, Place.CHILD, call)
    run_id = machine.info.run_id
    promise.child_run = child_run_id(run_id, promise.step)
    spawn = Spawn(promise.child_run, workflow, payload, parent_address(run_id, promise.step))
    scheduled = e.InvokeScheduled(promise.step, workflow.name, payload=payload)
    machine.record.emit(scheduled, spawn)
    machine.record.emit(e.InvokeStarted(promise.step, 1))
    promise.attempt = 1
    return promise


def _begin_branch(machine: "Machine", fiber: Fiber, branch: Branch[Any]) -> DurablePromise:
    if fiber.depth + 2 > MAX_DEPTH:
        branch.coroutine.close()
        raise DepthExceeded(
            f"branch {branch.name!r} would nest {fiber.depth + 2} deep",
            f"at most {MAX_DEPTH} levels may nest; start a child run instead",
        )
    promise = machine.promise(fiber, Place.BRANCH, branch)
    scheduled = e.InvokeScheduled(promise.step, branch.name, e.InvokeKind.BRANCH)
    machine.record.emit(scheduled)
    machine.record.emit(e.InvokeStarted(promise.step, 1))
    promise.attempt = 1
    # The context is that of the fiber which begins it: its coroutine is being driven.
    depth = fiber.depth + 1
    promise.fiber = Fiber(branch.coroutine, promise.step, depth, promise, copy_context())
    machine.add_fiber(promise.fiber)
    return promise


def _begin_timer(machine: "Machine", fiber: Fiber, sleep: Sleep) -> DurablePromise:
    machine.used(sleep)
    promise = machine.promise(fiber, Place.TIMER, sleep)
    run_id, step = machine.info.run_id, promise.step
    fire_at = machine.sources.now_ms() + sleep.duration_ms
    message = Message(run_id, timer_guid(run_id, step), "timer", fire_at, fire_at, step)
    machine.record.emit(e.TimerScheduled(step, sleep.duration_ms, fire_at), Enqueue(message))
    return promise


def _begin_receive(machine: "Machine", fiber: Fiber, receive: Receive[Any]) -> DurablePromise:
    machine.used(receive)
    promise = machine.promise(fiber, Place.SIGNAL, receive)
    machine.expect(promise, receive.signal.name)
    return promise
