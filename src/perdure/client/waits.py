"""What a run of a graph waits for, as the store tells it."""

import msgspec

from perdure.core.ids import RunId, StepId
from perdure.store.store import Store


class HookWait(msgspec.Struct, frozen=True):
    """A step that waits for a signal to topic and key, since then."""

    step: StepId
    topic: str
    key: str
    since_ms: int


class JoinWait(msgspec.Struct, frozen=True):
    """A node that waits: so many of the predecessors that it requires are resolved."""

    step: StepId
    required: int
    resolved: int


class Waits(msgspec.Struct, frozen=True):
    """In the order of steps."""

    hooks: list[HookWait]
    joins: list[JoinWait]


async def waits_of(store: Store, run_id: RunId) -> Waits:
    hooks = await store.hooks_waiting(run_id)
    joins = await store.readiness(run_id)
    return Waits(
        [HookWait(hook.step, hook.topic, hook.key, hook.since_ms) for hook in hooks],
        [JoinWait(join.step, join.required, join.completed) for join in joins],
    )
