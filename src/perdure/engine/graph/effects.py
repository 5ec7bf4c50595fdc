"""Effects that commit with a graph's decisions: the index of joins, hooks and search keys, and published job data."""

from typing import TYPE_CHECKING, Any

from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.graph.walk import Walk
from perdure.core.ids import StepId
from perdure.engine.runs.effects import AddHook, Deliver, Publish, RunEffect, SetReady, TrackJoin

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def index_effects(walk: Walk) -> list[RunEffect]:
    """The index changes of a walk: joins that wait for more, values given to them, and joins that are ready."""
    if not (walk.tracked or walk.ready):
        return []
    effects: list[RunEffect] = [SetReady(step) for step in walk.ready]
    effects.extend(
        TrackJoin(step, required, resolved)
        for step, (required, resolved) in walk.tracked.items()
        if resolved
    )
    effects.extend(Deliver(each) for each in walk.delivered)
    return effects


def key_effects(machine: "GraphMachine", walk: Walk, scope: dict[str, Any]) -> tuple[AddHook, ...]:
    """The search keys of a new run."""
    lowered = machine.workflow.lowered
    return tuple(
        hook(machine, lowered.trigger.step(()), "key", name, key_text(walk.value(text, scope)))
        for name, text in lowered.keys
    )


def job_effects(machine: "GraphMachine") -> tuple[RunEffect, ...]:
    """Publishes the job data, if the graph persists it and it has changed."""
    job = machine.state.job
    if not machine.workflow.lowered.persists or job is machine.published:
        return ()
    machine.published = job
    return (Publish("job", machine.codec.encode(job)),)


def hook(machine: "GraphMachine", step: StepId, kind: str, topic: str, key: str) -> AddHook:
    mailbox = mailbox_of(topic, key, machine.tenant)
    return AddHook(step, mailbox, kind, topic, key, machine.sources.arrival(mailbox))
