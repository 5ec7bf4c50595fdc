"""Begins a graph run: the search keys of its trigger, its first activities, and what it emits."""

from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.core.graph.state import VariableScope
from perdure.core.graph.step_error import step_error_from
from perdure.core.graph.transition import PASSED
from perdure.core.graph.vertex import NO_PLANE
from perdure.core.graph.walk import Walk
from perdure.core.ids import Guid, message_guid
from perdure.core.journal import events as e
from perdure.core.ledger import COMPLETED, SPAWNED, message_account
from perdure.engine.graph.effects import key_effects
from perdure.engine.graph.ending import complete_run, fail_run
from perdure.engine.graph.labels import posted
from perdure.engine.runs.effects import Publish, RunEffect

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def trigger_run(machine: "GraphMachine", event: e.ExecutionStarted) -> None:
    """Begin the run; the walk from its trigger comes next."""
    graph = machine.workflow.lowered
    guid = event.guid or message_guid(machine.info.run_id, "start")
    walk = Walk(machine.state, machine.codec)
    scope: VariableScope = {}
    effects: tuple[RunEffect, ...] = ()
    try:
        scope = machine.workflow.scope(machine.codec, event.payload or b"{}")
        effects = machine.search_keys = key_effects(machine, walk, scope)
        walk.leave(graph.trigger, NO_PLANE, scope, PASSED)
    except Exception as error:  # an input that does not fit, or an expression that raises
        walk.error = step_error_from(error)
    machine.walk(walk, partial(_triggered, machine, guid, scope, effects))


def _triggered(
    machine: "GraphMachine",
    guid: Guid,
    scope: VariableScope,
    effects: tuple[RunEffect, ...],
    walk: Walk,
) -> None:
    """Open the trigger's children, after the walk."""
    emitted: list[RunEffect] = []
    if walk.error is None:
        try:
            emitted = _emitted(machine, walk, scope)
        except Exception as error:  # raised by an expression
            walk.error = step_error_from(error)
    if walk.error is not None:
        fail_run(machine, walk.error)
        return
    count = len(walk.begun)
    spawned = posted("spawn", (message_account(guid), SPAWNED), semaphore=count - 1)
    machine.record.emit(spawned, *effects, *machine.indexed(walk))
    machine.state.semaphore = count
    emit = partial(_emit, machine, guid, emitted, is_last=not count)
    machine.decide(walk, emit if emitted or not count else None)


def _emitted(machine: "GraphMachine", walk: Walk, scope: dict[str, Any]) -> list[RunEffect]:
    graph, codec = machine.workflow.lowered, machine.codec
    found: list[RunEffect] = []
    if graph.emit is not None:
        found.append(Publish("emitted", codec.encode(walk.value(graph.emit, scope))))
    if graph.persists:
        machine.published = machine.state.job
        found.append(Publish("job", codec.encode(machine.state.job)))
    return found


def _emit(machine: "GraphMachine", guid: Guid, emitted: list[RunEffect], *, is_last: bool) -> None:
    """Step 3: publish what the trigger emits; complete the run if the trigger has no children."""
    if emitted:
        machine.record.emit(posted("emit", (message_account(guid), COMPLETED)), *emitted)
    if is_last:
        complete_run(machine, None if emitted else guid, None)
