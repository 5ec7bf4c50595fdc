"""What commits with a graph's decisions besides its books: the index of joins, hooks and search keys."""

from typing import TYPE_CHECKING, Any

from perdure.core.graph.identity import key_text, mailbox_of
from perdure.core.graph.walk import Walk
from perdure.core.ids import StepId
from perdure.engine.replay.effects import Deliver, Effect, Hook, Ready, Track

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def index_effects(walk: Walk) -> list[Effect]:
    """Which joins wait for more, what they have been given, and which wait no longer."""
    if not (walk.tracked or walk.ready):
        return []
    effects: list[Effect] = [Ready(step) for step in walk.ready]
    effects.extend(
        Track(step, required, resolved)
        for step, (required, resolved) in walk.tracked.items()
        if resolved
    )
    effects.extend(Deliver(each) for each in walk.delivered)
    return effects


def key_effects(machine: "GraphMachine", walk: Walk, scope: dict[str, Any]) -> tuple[Effect, ...]:
    """The search keys that a run is born with."""
    lowered = machine.workflow.lowered
    return tuple(
        hook(machine, lowered.trigger.step(()), "key", name, walk.value(text, scope))
        for name, text in lowered.keys
    )


def hook(machine: "GraphMachine", step: StepId, kind: str, topic: str, key: Any) -> Hook:
    text = key_text(key)
    mailbox = mailbox_of(topic, text)
    return Hook(step, mailbox, kind, topic, text, machine.sources.arrival(mailbox))
