"""How each primitive begins: its digits, and what commits with them."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perdure.authoring.call import Call, Sleep
from perdure.authoring.registry import find
from perdure.authoring.response import OK, Response
from perdure.authoring.task import Task
from perdure.core.errors import InputError, UnknownName
from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.graph.state import CycleHook
from perdure.core.graph.trouble import trouble_of
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
from perdure.core.graph.walk import PASSED, Answer, Begun, Walk
from perdure.core.ids import StepId, message_guid, parse_run_id
from perdure.core.journal import events as e
from perdure.core.ledger import ENTRY, LEG1_DONE, WORK_DONE, message_account, step_account
from perdure.core.limits import MAX_PAYLOAD_BYTES
from perdure.core.messages import Message
from perdure.core.replay.identity import (
    cancel_guid,
    child_run_id,
    parent_address,
    result_guid,
    signal_guid,
    timer_guid,
)
from perdure.engine.graph.ending import interrupt
from perdure.engine.graph.labels import posted
from perdure.engine.replay.beginning import work_of
from perdure.engine.replay.effects import (
    Broadcast,
    Effect,
    Enqueue,
    Mail,
    PutWork,
    Spawn,
)
from perdure.engine.replay.errand import HEADER_ROOM
from perdure.engine.replay.promise import DurablePromise, Place

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine

_NOBODY = Sleep(0)
"""What a timer's promise stands for: its step says all."""

LONGEST_WAIT_S = 100 * 365 * 86_400


def begin(machine: "GraphMachine", begun: Begun, step: StepId) -> None:
    """The activity begins: it asks, or is through at once."""
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


def _ask_task(machine: "GraphMachine", begun: Begun, step: StepId, request: TaskRequest) -> None:
    task: Task[..., Any] | None = find("task", request.task)
    if task is None:
        raise UnknownName(
            f"graph {machine.info.program!r} calls task {request.task!r}, which is not registered here",
            "import the module that defines it, and start the engine again",
        )
    task = _tuned(task, request)
    is_queued = task.queue is not None
    limit = MAX_PAYLOAD_BYTES - HEADER_ROOM if is_queued else MAX_PAYLOAD_BYTES
    payload = machine.codec.encode(begun.arguments, limit=limit)
    call: Call[Any] = Call(task, begun.arguments)
    call.is_used = True
    place = Place.QUEUED if is_queued else Place.LOCAL
    promise = _promised(machine, begun, step, place, call)
    promise.input = payload
    machine.attempt(step)
    scheduled = e.InvokeScheduled(step, task.name, task.kind, task.policy, True, payload=payload)
    if is_queued:
        work = work_of(machine, promise, 1, machine.sources.now_ms())
        machine.record.emit(scheduled, PutWork(work))
        return
    machine.record.emit(scheduled)
    if not machine.record.is_replaying:
        machine.unstarted.append(promise)


def _tuned(task: Task[..., Any], request: TaskRequest) -> Task[..., Any]:
    """The task with the graph's own patience, where that says something of it."""
    if request.retry is None and request.timeout is None:
        return task
    retry = task.retry
    if request.retry is not None:
        rule = request.retry
        retry = replace(
            retry,
            attempts=rule.attempts,
            first=rule.first,
            factor=rule.factor,
            ceiling=rule.ceiling,
        )
    return task.tuned(retry, request.timeout)


def _promised(
    machine: "GraphMachine", begun: Begun, step: StepId, place: Place, operation: Any
) -> DurablePromise:
    promise = DurablePromise(step, place, operation, None, machine.codec)
    found = machine.ask(begun, step)
    found.promise = machine.promises[step] = promise
    found.guid = result_guid(machine.info.run_id, step, 1)
    return promise


def _ask_child(machine: "GraphMachine", begun: Begun, step: StepId, request: ChildRequest) -> None:
    program = machine.programs.find(request.program)
    if program is None:
        raise UnknownName(
            f"graph {machine.info.program!r} awaits program {request.program!r}, which is not known here",
            "import the module that defines it or deploy it, and start the engine again",
        )
    payload = machine.codec.encode(begun.arguments)
    call: Call[Any] = Call(program, begun.arguments)
    call.is_used = True
    promise = _promised(machine, begun, step, Place.CHILD, call)
    run_id = machine.info.run_id
    child = promise.child_run = child_run_id(run_id, step)
    parent = parent_address(run_id, step) if request.waits else None
    machine.attempt(step)
    scheduled = e.InvokeScheduled(step, program.name, staged=True, payload=payload)
    machine.record.emit(scheduled, Spawn(child, program, payload, parent))
    machine.record.emit(e.InvokeStarted(step, 1))
    promise.attempt = 1
    promise.is_running = True
    if not request.waits:
        found = machine.steps[step]
        assert found.guid is not None  # noqa: S101 - it was just made
        machine.record.emit(machine.entry(found, found.guid))
        found.entries = 1
        told = machine.codec.encode(child)
        completed = e.InvokeCompleted(step, 1, True, found.guid, True, payload=told)
        machine.record.emit(completed)
        machine.on_completed(completed)


def _ask_timer(machine: "GraphMachine", begun: Begun, step: StepId, _: TimerRequest) -> None:
    duration = _duration_ms(step, begun.arguments["seconds"])
    machine.attempt(step)
    _promised(machine, begun, step, Place.TIMER, _NOBODY)
    _schedule(machine, step, duration)


def _duration_ms(step: StepId, seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError(f"step {step!r} waits for {seconds!r}", "give a number of seconds")
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
    machine: "GraphMachine", begun: Begun, step: StepId, request: SignalRequest
) -> None:
    key, limit = begun.arguments.get("key"), begun.arguments.get("timeout")
    text = None if request.key is None else key_text(key)
    duration = 0 if request.timeout is None else _duration_ms(step, limit)
    machine.attempt(step)
    effects: tuple[Effect, ...] = ()
    names: tuple[str, ...] = (request.topic,)
    found = machine.ask(begun, step)
    if text is not None:
        found.key = text
        names = (machine.signal_name(request.topic, step), request.topic)
        effects = (machine.hook_of(found),)
    if request.timeout is None:
        account = step_account(step)
        machine.record.emit(posted("leg 1", (account, LEG1_DONE)), *effects)
    else:
        promise = DurablePromise(step, Place.TIMER, _NOBODY, None, machine.codec)
        found.promise = machine.promises[step] = promise
        for effect in effects:
            machine.record.attach(effect)
        _schedule(machine, step, duration)
    machine.signals.expect(step, names)
    machine.receive(found)


# At once


def _pass(machine: "GraphMachine", begun: Begun, step: StepId) -> None:
    """The work is done at once."""
    vertex = begun.vertex
    effects = () if vertex.sending is None else _send(machine, begun, step)
    _go_through(machine, begun, step, PASSED, effects)


def stumble(machine: "GraphMachine", begun: Begun, step: StepId, error: Exception) -> None:
    """What the activity asks for can't be asked: it is through at once, and that is its answer."""
    _go_through(machine, begun, step, Answer(trouble=trouble_of(error)), ())


def _go_through(
    machine: "GraphMachine",
    begun: Begun,
    step: StepId,
    answer: Answer,
    effects: tuple[Effect, ...],
) -> None:
    """One leg, then the three steps."""
    vertex, plane = begun.vertex, begun.plane
    guid = message_guid(machine.info.run_id, "pass", step)
    message, account = message_account(guid), step_account(step)
    machine.attempt(step, (message, ENTRY))
    if isinstance(vertex.sending, ToAll) and not machine.record.is_replaying:
        machine.is_turn_over = True
    leg1 = LEG1_DONE
    if vertex.cycles:
        # What comes back here is the second time.
        leg1 += ENTRY
        machine.state.hooks[vertex.index, plane] = CycleHook(begun.scope)
    inner = (*plane, 0) if vertex.opens_planes else plane
    machine.record.emit(posted("work", (message, WORK_DONE), (account, leg1)), *effects)
    walk = Walk(machine.state, machine.codec)
    walk.leave(vertex, inner, begun.scope, answer)
    machine.spawn(vertex, step, guid, walk)


def _send(machine: "GraphMachine", begun: Begun, step: StepId) -> tuple[Effect, ...]:
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
        return (Enqueue(Message(target, cancel_guid(target), kind, now, now, payload=payload)),)
    assert sending is not None  # noqa: S101 - asked before
    data = given["data"]
    if sending.code != OK:
        data = Response(data, sending.code)
    payload = machine.codec.encode(data)
    kind = f"signal:{sending.topic}"
    if isinstance(sending, ToRun):
        target = parse_run_id(str(given["run"]))
        guid = signal_guid(target, sending.topic, sender)
        arrival = machine.arrival()
        return (Enqueue(Message(target, guid, kind, now, arrival, payload=payload)),)
    if isinstance(sending, ToTopic):
        mailbox = mailbox_of(sending.topic, key_text(given["key"]))
        guid = signal_guid(mailbox, sending.topic, sender)
        arrival = machine.arrival()
        return (Mail(Message(mailbox, guid, kind, now, arrival, payload=payload)),)
    assert isinstance(sending, ToAll)  # noqa: S101 - there is no other
    mailbox = mailbox_of(sending.name, key_text(given["key"]))
    # Of a GUID the last part: the first names the run that it goes to.
    suffix = signal_guid(mailbox, sending.topic, sender).rpartition("_")[2]
    return (Broadcast(mailbox, kind, payload, suffix, now, sending.scrubs),)


def _re_enter(machine: "GraphMachine", begun: Begun, step: StepId) -> None:
    """Back to a hook, in the next plane. The obligation of the cycle is the hook's from here on."""
    hook = begun.vertex.returns_to
    assert hook is not None  # noqa: S101 - lowered so
    machine.attempt(step)
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
    machine.spawn(hook, target, guid, walk)


def _is_for_itself(machine: "GraphMachine", begun: Begun) -> bool:
    """Whether it is to stop another run, which turns out to be this one."""
    sending = begun.vertex.sending
    return isinstance(sending, Stop) and begun.arguments.get("target") == machine.info.run_id


def _end(machine: "GraphMachine", begun: Begun, step: StepId) -> None:
    stop = begun.vertex.sending
    assert isinstance(stop, Stop)  # noqa: S101 - lowered so
    machine.attempt(step)
    machine.state.semaphore -= 1
    machine.record.emit(posted("end", (step_account(step), LEG1_DONE), semaphore=-1))
    reason = str(begun.arguments["reason"])
    interrupt(machine, reason, stop.code, throws=stop.throws, descends=stop.descends)


_REQUESTS: dict[Any, Callable[["GraphMachine", Begun, StepId, Any], None]] = {
    TaskRequest: _ask_task,
    ChildRequest: _ask_child,
    TimerRequest: _ask_timer,
    SignalRequest: _ask_signal,
}
