"""Begins the activities of a graph, by primitive: posts their digits, with the effects that commit with them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.authoring.call import Call, Sleep
from perdure.authoring.registry import find
from perdure.authoring.response import OK, Response
from perdure.authoring.retry import ONCE, Retry
from perdure.authoring.task import Task
from perdure.core.codec import encode_named
from perdure.core.errors import InputError, UnknownName
from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.graph.model import RetryRule
from perdure.core.graph.state import CycleHook
from perdure.core.graph.step_error import step_error_from
from perdure.core.graph.transition import PASSED, StartingStep, StepResponse
from perdure.core.graph.vertex import (
    ChildRequest,
    Primitive,
    SignalRequest,
    Stop,
    TaskRequest,
    TimerRequest,
    ToAll,
    ToRun,
    ToTopic,
)
from perdure.core.graph.walk import Walk
from perdure.core.ids import StepId, message_guid, parse_run_id
from perdure.core.journal import events as e
from perdure.core.ledger import ATTEMPT, ENTRY, LEG1_DONE, WORK_DONE, message_account, step_account
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.core.messages import AT_ONCE, HEADER_ROOM, Message, at_once
from perdure.core.replay.identity import (
    cancel_guid,
    child_run_id,
    parent_address,
    result_guid,
    signal_guid,
    timer_guid,
)
from perdure.engine.graph.effects import job_effects
from perdure.engine.graph.ending import interrupt_run
from perdure.engine.graph.entering import enter_step
from perdure.engine.graph.labels import posted
from perdure.engine.graph.receiving import receive_signal
from perdure.engine.runs.effects import (
    Enqueue,
    PutWork,
    RunEffect,
    SendBroadcast,
    SendToMailbox,
    SpawnChild,
)
from perdure.engine.runs.promise import DurablePromise, PromiseKind
from perdure.engine.runs.work_payload import work_of

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine

_NO_OPERATION = Sleep(0)
"""The operation of a timer's promise, which has none of its own."""

LONGEST_WAIT_S = 100 * 365 * 86_400


def begin_activity(machine: "GraphMachine", begun: StartingStep, step: StepId) -> None:
    """Begin an activity: it requests an answer for later, or completes at once."""
    vertex = begun.vertex
    primitive = vertex.primitive
    if primitive is Primitive.RESPOND_LATER:
        _REQUESTS[type(vertex.request)](machine, begun, step, vertex.request)
    elif primitive is Primitive.RE_ENTER:
        _re_enter(machine, begun, step)
    elif primitive is Primitive.END or _is_for_itself(machine, begun):
        _end(machine, begun, step)
    else:
        _pass(machine, begun, step)


# Respond later


def _ask_task(
    machine: "GraphMachine", begun: StartingStep, step: StepId, request: TaskRequest
) -> None:
    task: Task[..., Any] | None = find("task", begun.name or request.task)
    if task is None:
        raise UnknownName(
            f"graph {machine.info.program!r} calls task {begun.name or request.task!r}, which is not registered here",
            "import the module that defines it, and start the engine again",
        )
    task = _tuned(task, request)
    is_queued = task.queue is not None
    limit = MAX_PAYLOAD_BYTES - HEADER_ROOM if is_queued else MAX_PAYLOAD_BYTES
    payload = _encode_arguments(machine, begun, step, f"task {task.name!r}", limit)
    call: Call[Any] = Call(task, begun.arguments)
    call.is_used = True
    kind = PromiseKind.QUEUED if is_queued else PromiseKind.LOCAL
    enter_step(machine, step)
    promise = _promised(machine, begun, step, kind, call)
    promise.task = task
    promise.input = payload
    scheduled = e.InvokeScheduled(
        step,
        task.name,
        task.kind,
        task.policy,
        True,
        e.InvokePlace.QUEUE if is_queued else None,
        task.queue,
        payload=payload,
    )
    if is_queued:
        work = work_of(machine, promise, 1, at_once(machine.sources.now_ms()))
        machine.record.emit(scheduled, PutWork(work))
        return
    machine.record.emit(scheduled)
    if not machine.record.is_replaying:
        machine.unstarted.append(promise)


def _tuned(task: Task[..., Any], request: TaskRequest) -> Task[..., Any]:
    """The task with the graph's own retry rule, timeout and way to fail, where the graph sets them."""
    if request.on_failure is not None:
        task = task.parking(request.on_failure == "park")
    if request.retry is None and request.timeout is None:
        return task
    retry = task.retry if request.retry is None else _retry(task.retry, request.retry)
    return task.tuned(retry, request.timeout)


def _retry(retry: Retry, rule: RetryRule) -> Retry:
    """The activity's rule; what it does not cover is taken from `retry`."""
    return replace(
        retry,
        attempts=rule.attempts,
        first=rule.first,
        factor=rule.factor,
        ceiling=rule.ceiling,
    )


def _promised(
    machine: "GraphMachine", begun: StartingStep, step: StepId, kind: PromiseKind, operation: Any
) -> DurablePromise:
    promise = DurablePromise(step, kind, operation, None, machine.codec)
    found = machine.ask(begun, step)
    found.promise = machine.promises[step] = promise
    found.guid = result_guid(machine.info.run_id, step, 1)
    return promise


def _encode_arguments(
    machine: "GraphMachine",
    begun: StartingStep,
    step: StepId,
    called: str,
    limit: int = MAX_PAYLOAD_BYTES,
) -> bytes:
    return encode_named(
        machine.codec,
        begun.arguments,
        lambda: f"an argument of {called} (step {step} of run {machine.info.run_id!r})",
        limit,
    )


def _ask_child(
    machine: "GraphMachine", begun: StartingStep, step: StepId, request: ChildRequest
) -> None:
    program = machine.programs.find(begun.name or request.program)
    if program is None:
        raise UnknownName(
            f"graph {machine.info.program!r} awaits program {begun.name or request.program!r}, which this host "
            "does not know",
            "import the module that defines it or deploy it, and start the engine again",
        )
    payload = _encode_arguments(machine, begun, step, f"{program.noun} {program.name!r}")
    call: Call[Any] = Call(program, begun.arguments)
    call.is_used = True
    enter_step(machine, step)
    promise = _promised(machine, begun, step, PromiseKind.CHILD, call)
    promise.input = payload
    promise.retry = None if request.retry is None else _retry(ONCE, request.retry)
    run_id = machine.info.run_id
    child = promise.child_run = child_run_id(run_id, step)
    parent = parent_address(run_id, step) if request.waits else None
    scheduled = e.InvokeScheduled(
        step,
        program.name,
        retry_policy=None if promise.retry is None else promise.retry.policy,
        staged=True,
        place=e.InvokePlace.RUN,
        payload=payload,
    )
    machine.record.emit(scheduled, SpawnChild(child, program, payload, parent, machine.tags))
    machine.record.emit(e.InvokeStarted(step, 1))
    promise.attempt = 1
    promise.is_running = True
    if not request.waits:
        found = machine.steps[step]
        assert found.guid is not None  # noqa: S101 - it was just made
        machine.record.emit(machine.entry(found, found.guid))
        found.entries = 1
        payload = machine.codec.encode(child)
        completed = e.InvokeCompleted(step, 1, True, found.guid, True, payload=payload)
        machine.record.emit(completed)
        machine.on_completed(completed)


def _ask_timer(machine: "GraphMachine", begun: StartingStep, step: StepId, _: TimerRequest) -> None:
    seconds = _seconds(step, begun.arguments["seconds"])
    # A journal written before this rule existed has a timer here; its first entry seeds no message.
    is_timer = machine.record.is_next(posted("attempt", (step_account(step), ATTEMPT)))
    if seconds <= 0 and not is_timer:
        _complete_at_once(machine, begun, step, PASSED, ())
        return
    duration = _duration_ms(step, max(seconds, 0))
    enter_step(machine, step)
    _promised(machine, begun, step, PromiseKind.TIMER, _NO_OPERATION)
    _schedule(machine, step, duration)


def _seconds(step: StepId, seconds: object) -> int | float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"step {step!r} waits for {seconds!r}", "give a number of seconds")
    return seconds


def _duration_ms(step: StepId, given: object) -> int:
    seconds = _seconds(step, given)
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise InputError(f"step {step!r} waits for {seconds!r} s", "give 0 s to 100 years")
    return round(seconds * 1000)


def _schedule(machine: "GraphMachine", step: StepId, duration: int) -> None:
    """A timer's leg 1."""
    run_id = machine.info.run_id
    fire_at = machine.sources.now_ms() + duration
    message = Message(run_id, timer_guid(run_id, step), "timer", fire_at, fire_at, step)
    scheduled = e.TimerScheduled(step, duration, fire_at, staged=True)
    machine.record.emit(scheduled, Enqueue(message))


def _ask_signal(
    machine: "GraphMachine", begun: StartingStep, step: StepId, request: SignalRequest
) -> None:
    key, limit = begun.arguments.get("key"), begun.arguments.get("timeout")
    text = None if request.key is None else key_text(key)
    duration = 0 if request.timeout is None else _duration_ms(step, limit)
    enter_step(machine, step)
    topic = begun.name or request.topic
    names: tuple[str, ...] = (topic,)
    found = machine.ask(begun, step)
    if text is not None:
        found.key = text
        names = (machine.signal_name(topic, step), topic)
    effects: tuple[RunEffect, ...] = (machine.hook_of(found),)
    if request.timeout is None:
        account = step_account(step)
        machine.record.emit(posted("leg 1", (account, LEG1_DONE)), *effects)
    else:
        promise = DurablePromise(step, PromiseKind.TIMER, _NO_OPERATION, None, machine.codec)
        found.promise = machine.promises[step] = promise
        for effect in effects:
            machine.record.attach(effect)
        _schedule(machine, step, duration)
    machine.signals.expect(step, names)
    receive_signal(machine, found)


# At once


def _pass(machine: "GraphMachine", begun: StartingStep, step: StepId) -> None:
    """Complete an activity that only sends, or does nothing."""
    vertex = begun.vertex
    effects = () if vertex.sending is None else _send(machine, begun, step)
    _complete_at_once(machine, begun, step, PASSED, effects)


def fail_activity(
    machine: "GraphMachine", begun: StartingStep, step: StepId, error: Exception
) -> None:
    """Complete an activity at once whose request is invalid: the error is its answer."""
    _complete_at_once(machine, begun, step, StepResponse(error=step_error_from(error)), ())


def _complete_at_once(
    machine: "GraphMachine",
    begun: StartingStep,
    step: StepId,
    answer: StepResponse,
    effects: tuple[RunEffect, ...],
) -> None:
    """Leg 1 and the three steps of leg 2, without a wait in between."""
    vertex, plane = begun.vertex, begun.plane
    guid = message_guid(machine.info.run_id, "pass", step)
    message, account = message_account(guid), step_account(step)
    enter_step(machine, step, (message, ENTRY))
    if isinstance(vertex.sending, ToAll) and not machine.record.is_replaying:
        machine.is_turn_over = True
    leg1 = LEG1_DONE
    if vertex.cycles:
        # Leg 1 counts as the first entry; a cycle back to this hook is the second.
        leg1 += ENTRY
        machine.state.hooks[vertex.index, plane] = CycleHook(begun.scope)
    inner = (*plane, 0) if vertex.opens_planes else plane
    machine.record.emit(posted("work", (message, WORK_DONE), (account, leg1)), *effects)
    walk = Walk(machine.state, machine.codec)
    walk.leave(vertex, inner, begun.scope, answer)
    machine.walk(walk, partial(machine.spawn, vertex, step, guid))


def _send(machine: "GraphMachine", begun: StartingStep, step: StepId) -> tuple[RunEffect, ...]:
    sending, given = begun.vertex.sending, begun.arguments
    run_id, now = machine.info.run_id, machine.sources.now_ms()
    sender = f"{run_id}/{step}"
    if isinstance(sending, Stop):
        target = parse_run_id(str(given["target"]))
        kind = "cancel"
        if sending.throws or not sending.descends:
            code = sending.code if sending.throws else 0
            kind = f"cancel:{code}:{int(sending.descends)}"
        payload = str(given["reason"]).encode()
        return (Enqueue(Message(target, cancel_guid(target), kind, AT_ONCE, now, payload=payload)),)
    assert sending is not None  # noqa: S101 - asked before
    data = given["data"]
    if sending.code != OK:
        data = Response(data, sending.code)
    payload = encode_named(
        machine.codec, data, lambda: f"the signal of step {step} of run {run_id!r}"
    )
    topic = begun.name or sending.topic
    kind = f"signal:{topic}"
    if isinstance(sending, ToRun):
        target = parse_run_id(str(given["run"]))
        guid = signal_guid(target, topic, sender)
        arrival = machine.arrival()
        return (Enqueue(Message(target, guid, kind, AT_ONCE, arrival, payload=payload)),)
    if isinstance(sending, ToTopic):
        mailbox = mailbox_of(topic, key_text(given["key"]), machine.tenant)
        guid = signal_guid(mailbox, topic, sender)
        arrival = machine.arrival()
        return (SendToMailbox(Message(mailbox, guid, kind, AT_ONCE, arrival, payload=payload)),)
    assert isinstance(sending, ToAll)  # noqa: S101 - there is no other
    mailbox = mailbox_of(sending.name, key_text(given["key"]), machine.tenant)
    # Only the last part of the GUID: the first part names the receiving run.
    suffix = signal_guid(mailbox, topic, sender).rpartition("_")[2]
    return (SendBroadcast(mailbox, kind, payload, suffix, now, sending.scrubs),)


def _re_enter(machine: "GraphMachine", begun: StartingStep, step: StepId) -> None:
    """Cycle back to a hook, in the next plane. From here on the hook has the cycle's obligation."""
    hook = begun.vertex.returns_to
    assert hook is not None  # noqa: S101 - lowered so
    enter_step(machine, step)
    account = step_account(step)
    machine.record.emit(posted("cycle", (account, LEG1_DONE + ENTRY)))
    plane = begun.plane[: len(hook.positions)]
    entered = machine.state.hooks[hook.index, plane]
    entered.entries += 1
    count = entered.entries
    target = hook.step(plane)
    guid = message_guid(machine.info.run_id, "cycle", step)
    message = message_account(guid)
    machine.record.emit(posted("re-entry", (step_account(target), ENTRY), (message, count)))
    machine.record.emit(posted("work", (message, WORK_DONE)))
    walk = Walk(machine.state, machine.codec)
    scope = {**entered.scope, **begun.arguments}
    walk.leave(hook, (*plane, count - 1), scope, PASSED)
    machine.walk(walk, partial(machine.spawn, hook, target, guid))


def _is_for_itself(machine: "GraphMachine", begun: StartingStep) -> bool:
    """Whether the activity stops a run by id, and that run is this one."""
    sending = begun.vertex.sending
    return isinstance(sending, Stop) and begun.arguments.get("target") == machine.info.run_id


def _end(machine: "GraphMachine", begun: StartingStep, step: StepId) -> None:
    stop = begun.vertex.sending
    assert isinstance(stop, Stop)  # noqa: S101 - lowered so
    walk = Walk(machine.state, machine.codec)
    try:
        walk.set_job_data(begun.vertex.job, begun.scope, PASSED.specials())
    except Exception as error:
        # Raised by an expression: the activity fails and does not end its run.
        _complete_at_once(machine, begun, step, StepResponse(error=step_error_from(error)), ())
        return
    enter_step(machine, step)
    machine.state.semaphore -= 1
    ended = posted("end", (step_account(step), LEG1_DONE), semaphore=-1)
    machine.record.emit(ended, *job_effects(machine))
    reason = str(begun.arguments["reason"])
    interrupt_run(machine, reason, stop.code, throws=stop.throws, descends=stop.descends)


_REQUESTS: dict[Any, Callable[["GraphMachine", StartingStep, StepId, Any], None]] = {
    TaskRequest: _ask_task,
    ChildRequest: _ask_child,
    TimerRequest: _ask_timer,
    SignalRequest: _ask_signal,
}
