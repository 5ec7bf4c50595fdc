"""Begins each kind of operation: takes its step id, emits its events and the effects that commit with them."""

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from perdure.authoring.call import BranchOperation, Call, DurableOperation, Sleep
from perdure.authoring.program import Program
from perdure.authoring.signal import Receive
from perdure.authoring.task import Task
from perdure.core.codec import ENCODING_ERRORS, named
from perdure.core.errors import DepthExceeded, ForeignAwait, InputError
from perdure.core.journal import events as e
from perdure.core.limits import MAX_DEPTH, MAX_PAYLOAD_BYTES
from perdure.core.messages import HEADER_ROOM, Message, at_once
from perdure.core.replay.identity import child_run_id, parent_address, timer_guid
from perdure.engine.runs.effects import Enqueue, PutWork, SpawnChild
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.work_payload import work_of
from perdure.engine.workflow.fiber import Fiber

if TYPE_CHECKING:
    from perdure.engine.workflow.machine import WorkflowMachine


def begin_operation(
    machine: "WorkflowMachine", fiber: Fiber, operation: DurableOperation[Any]
) -> DurablePromise:
    """Schedule `operation` under the fiber's next step id."""
    if isinstance(operation, Call):
        return _begin_call(machine, fiber, operation)
    if isinstance(operation, Sleep):
        return begin_timer(machine, fiber, operation)[0]
    if isinstance(operation, Receive):
        return _begin_receive(machine, fiber, operation)
    if isinstance(operation, BranchOperation):
        return _begin_branch(machine, fiber, operation)
    raise ForeignAwait(f"{operation!r} is not durable", "await calls, or perdure's verbs")


def _begin_call(machine: "WorkflowMachine", fiber: Fiber, call: Call[Any]) -> DurablePromise:
    machine.unawaited.pop(id(call), None)
    call.use()
    definition = call.definition
    is_queued = isinstance(definition, Task) and definition.queue is not None
    limit = MAX_PAYLOAD_BYTES - HEADER_ROOM if is_queued else MAX_PAYLOAD_BYTES
    try:
        payload = machine.codec.encode(call.arguments, limit=limit)
    except ENCODING_ERRORS as error:
        step = f"step {machine.next_place(fiber)} of run {machine.info.run_id!r}"
        raise named(
            error, f"an argument of {definition.noun} {definition.name!r} ({step})"
        ) from None
    try:
        _require_right_arguments(machine, call, payload)
    except InputError:
        # A journal written before this check existed may have the step: the run then resumes as before.
        if not machine.record.is_scheduled(machine.next_place(fiber), definition.name, payload):
            raise
    if not isinstance(definition, Task):
        return _begin_child(machine, fiber, call, payload)
    kind = PromiseKind.QUEUED if is_queued else PromiseKind.LOCAL
    promise = machine.promise(fiber, kind, call)
    promise.task = definition
    promise.input = payload
    scheduled = e.InvokeScheduled(
        promise.step,
        definition.name,
        definition.kind,
        definition.policy,
        place=e.InvokePlace.QUEUE if is_queued else None,
        queue=definition.queue,
        payload=payload,
    )
    if is_queued:
        work = work_of(machine, promise, 1, at_once(machine.sources.now_ms()))
        machine.record.emit(scheduled, PutWork(work))
    else:
        machine.record.emit(scheduled)
        if not machine.record.is_replaying:
            # After a replay, `recover_attempts` finds the tasks that have not started.
            machine.unstarted.append(promise)
    return promise


def _require_right_arguments(machine: "WorkflowMachine", call: Call[Any], payload: bytes) -> None:
    """Refuse a call whose arguments don't match its annotations, before anything of it is journaled."""
    definition = call.definition
    if not isinstance(definition, Task):
        if isinstance(definition, Program):
            definition.check_input(machine.codec, payload)
        return
    if (name := definition.signature.contradicted(call.arguments)) is not None:
        given = type(call.arguments[name]).__qualname__
        raise InputError(
            f"argument {name!r} of {definition.noun} {definition.name!r} is of type {given!r}, which does not match "
            "its annotation",
            "pass a value of the annotated type, or change the annotation",
        )


def _begin_child(
    machine: "WorkflowMachine", fiber: Fiber, call: Call[Any], payload: bytes
) -> DurablePromise:
    workflow = call.definition
    assert isinstance(workflow, Program)  # noqa: S101 - for the type checker
    promise = machine.promise(fiber, PromiseKind.CHILD, call)
    run_id = machine.info.run_id
    promise.child_run = child_run_id(run_id, promise.step)
    promise.input = payload
    parent = parent_address(run_id, promise.step)
    spawn = SpawnChild(promise.child_run, workflow, payload, parent, machine.tags)
    scheduled = e.InvokeScheduled(
        promise.step, workflow.name, place=e.InvokePlace.RUN, payload=payload
    )
    machine.record.emit(scheduled, spawn)
    machine.record.emit(e.InvokeStarted(promise.step, 1))
    promise.attempt = 1
    return promise


def _begin_branch(
    machine: "WorkflowMachine", fiber: Fiber, branch: BranchOperation[Any]
) -> DurablePromise:
    if fiber.depth + 2 > MAX_DEPTH:
        branch.coroutine.close()
        raise DepthExceeded(
            f"branch {branch.name!r} would nest {fiber.depth + 2} deep",
            f"at most {MAX_DEPTH} levels may nest; start a child run instead",
        )
    promise = machine.promise(fiber, PromiseKind.BRANCH, branch)
    scheduled = e.InvokeScheduled(promise.step, branch.name, e.InvokeKind.BRANCH)
    machine.record.emit(scheduled)
    machine.record.emit(e.InvokeStarted(promise.step, 1))
    promise.attempt = 1
    # A copy of the current context: that of the fiber that begins the branch.
    depth = fiber.depth + 1
    promise.fiber = Fiber(machine, branch.coroutine, promise.step, depth, promise, copy_context())
    machine.add_fiber(promise.fiber)
    return promise


def begin_timer(
    machine: "WorkflowMachine", fiber: Fiber, sleep: Sleep
) -> tuple[DurablePromise, e.TimerScheduled]:
    """Begin a timer. Returns its event too, which says when it fires."""
    machine.used(sleep)
    promise = machine.promise(fiber, PromiseKind.TIMER, sleep)
    run_id, step = machine.info.run_id, promise.step
    fire_at = machine.sources.now_ms() + sleep.duration_ms
    message = Message(run_id, timer_guid(run_id, step), "timer", fire_at, fire_at, step)
    event = machine.record.emit(
        e.TimerScheduled(step, sleep.duration_ms, fire_at), Enqueue(message)
    )
    return promise, event


def _begin_receive(
    machine: "WorkflowMachine", fiber: Fiber, receive: Receive[Any]
) -> DurablePromise:
    machine.used(receive)
    promise = machine.promise(fiber, PromiseKind.SIGNAL, receive)
    machine.expect(promise, receive.signal.name)
    return promise
