"""Deliberate bugs in the protocol: what the explorer is worth is how many of them it catches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.core.ids import Guid, HostId
from perdure.core.journal.events import (
    ExecutionCompleted,
    ExecutionStarted,
    InvokeCompleted,
    InvokeScheduled,
    Posted,
    Posting,
)
from perdure.core.journal.state import State
from perdure.core.ledger import ENTRY, SPAWNED, message_account, step_account
from perdure.core.messages import Message, Work
from perdure.engine.runs.commit_mode import CommitMode
from perdure.engine.runs.warm import LoadedRun
from perdure.engine.sources import Sources
from perdure.store.commit.bundle import Bundle
from perdure.store.store import Store
from tests.engine.legs import (
    Digit,
    Part,
    Transition,
    message_ledger,
    plan_leg1,
    plan_leg2,
    plan_trigger,
)
from tests.engine.parts import commit_parts
from tests.engine.tree import Protocol


@dataclass(frozen=True)
class SeededBug:
    """`patches` replace SQL of the store; the protocol has the bug in it.

    Some bugs show in any run, because the checkers see them; the others need the fault that they are about.
    """

    name: str
    protocol: Callable[[], Protocol] = Protocol
    patches: dict[str, tuple[str, str]] = field(default_factory=dict)
    shows_without_a_fault: bool = False


def _without(parts: Sequence[Part], **fields: Any) -> list[Part]:
    return [msgspec.structs.replace(part, **fields) for part in parts]


# Commits in the wrong order, or apart


async def _acknowledge_first(
    store: Store, run: LoadedRun, guid: Guid, parts: list[Part], sources: Sources, mode: CommitMode
) -> None:
    bundle = Bundle()
    bundle.acknowledge(run.fence, guid)
    await store.commit(bundle)
    await commit_parts(store, run, guid, _without(parts, acknowledges=False), sources, mode)


async def _children_later(
    store: Store, run: LoadedRun, guid: Guid, parts: list[Part], sources: Sources, mode: CommitMode
) -> None:
    await commit_parts(store, run, guid, _without(parts, messages=()), sources, mode)
    bundle = Bundle()
    for message in (message for part in parts for message in part.messages):
        bundle.enqueue(message)
    await store.commit(bundle)


async def _work_later(
    store: Store, run: LoadedRun, guid: Guid, parts: list[Part], sources: Sources, mode: CommitMode
) -> None:
    await commit_parts(store, run, guid, _without(parts, work=()), sources, mode)
    bundle = Bundle()
    for work in (work for part in parts for work in part.work):
        bundle.put_work(run.fence, work)
    await store.commit(bundle)


# Digits that are not read, or not written


def _lost_closed_bit(state: State, answer: Transition, outcome: InvokeCompleted) -> list[Part]:
    def forget(part: Part) -> Part:
        if part.settlement is None:
            return part
        posted = Posted(
            "spawn", (Posting(message_account(answer.guid), SPAWNED),), part.settlement.delta
        )
        return msgspec.structs.replace(part, events=(posted,), settlement=None)

    def complete_without_proof(part: Part) -> Part:
        if part.digit is not Digit.COMPLETE:
            return part
        completed = ExecutionCompleted(payload=answer.result, released=0)
        return msgspec.structs.replace(part, events=(completed,))

    parts = map(forget, plan_leg2(state, answer, outcome))
    return [complete_without_proof(part) for part in parts]


def _double_spawn(state: State, answer: Transition, outcome: InvokeCompleted) -> list[Part]:
    parts = plan_leg2(state, answer, outcome)
    message = message_ledger(state, answer.guid)
    if message.spawned and not state.is_terminal:
        again = Posted("spawn", (), len(answer.children))
        parts.insert(0, Part(Digit.SPAWN, (again,), messages=answer.children))
    return parts


def _completion_without_digit(
    state: State, answer: Transition, outcome: InvokeCompleted
) -> list[Part]:
    def strip(part: Part) -> Part:
        if part.digit is not Digit.COMPLETE:
            return part
        completed = ExecutionCompleted(payload=answer.result, released=0)
        return msgspec.structs.replace(part, events=(completed,))

    return [strip(part) for part in plan_leg2(state, answer, outcome)]


def _entry_on_every_delivery(
    state: State, answer: Transition, outcome: InvokeCompleted
) -> list[Part]:
    parts = plan_leg2(state, answer, outcome)
    if message_ledger(state, answer.guid) and not state.is_terminal:
        entered = Posted("entry", (Posting(step_account(answer.step), ENTRY),))
        parts.insert(0, Part(Digit.ENTRY, (entered,)))
    return parts


def _leg1_on_every_delivery(
    state: State, ask: Transition, scheduled: InvokeScheduled, work: Work
) -> list[Part]:
    parts = plan_leg1(state, ask, scheduled, work)
    if not any(part.work for part in parts) and not state.is_terminal:
        parts.insert(0, Part(Digit.LEG1, work=(work,)))
    return parts


def _parent_stays_open(state: State, answer: Transition, outcome: InvokeCompleted) -> list[Part]:
    def count_children_only(part: Part) -> Part:
        if part.settlement is None or not answer.children:
            return part
        posting = Posting(message_account(answer.guid), SPAWNED)
        posted = Posted("spawn", (posting,), len(answer.children))
        return msgspec.structs.replace(part, events=(posted,), settlement=None)

    return [count_children_only(part) for part in plan_leg2(state, answer, outcome)]


def _trigger_trusts_the_semaphore(
    state: State, start: Transition, inception: ExecutionStarted
) -> list[Part]:
    parts = plan_trigger(state, start, inception)
    if not parts and state.semaphore == 0 and not state.is_terminal:
        completed = ExecutionCompleted(payload=start.result, released=0, guid=start.guid)
        parts.append(Part(Digit.COMPLETE, (completed,)))
    return parts


def _cursor() -> Protocol:
    """Polls for what arrived after the last thing seen: commit order is not arrival order."""
    seen: set[tuple[int, str]] = set()

    async def poll(store: Store, owner: HostId, now_ms: int) -> list[Message]:
        mark = max(seen, default=(0, ""))
        due = await store.due_messages(owner, now_ms, 100)
        fresh = [m for m in due if (m.arrival, m.guid) > mark]
        seen.update((m.arrival, m.guid) for m in fresh[:1])
        return fresh

    return Protocol(due_messages=poll)


BUGS = [
    SeededBug(
        "no fence",
        patches={
            "advance_runs": (
                "run.id = b.column1 AND run.epoch = b.column2\n"
                "  AND (b.column3 IS NULL OR (run.head = b.column3 AND run.semaphore = b.column4))",
                "run.id = b.column1",
            ),
            "append_events": ("VALUES :rows", "VALUES :rows ON CONFLICT DO NOTHING"),
        },
    ),
    SeededBug("acknowledge before commit", lambda: Protocol(commit_parts=_acknowledge_first)),
    SeededBug("children outside the bundle", lambda: Protocol(commit_parts=_children_later)),
    SeededBug("work outside the bundle", lambda: Protocol(commit_parts=_work_later)),
    SeededBug(
        "body before intent", lambda: Protocol(body_before_intent=True), shows_without_a_fault=True
    ),
    SeededBug("cursor polling", _cursor, shows_without_a_fault=True),
    SeededBug(
        "lost closed bit", lambda: Protocol(plan_leg2=_lost_closed_bit), shows_without_a_fault=True
    ),
    SeededBug("double spawn", lambda: Protocol(plan_leg2=_double_spawn)),
    SeededBug(
        "completion without a digit",
        lambda: Protocol(plan_leg2=_completion_without_digit),
        shows_without_a_fault=True,
    ),
    SeededBug("entry on every delivery", lambda: Protocol(plan_leg2=_entry_on_every_delivery)),
    SeededBug("leg 1 on every delivery", lambda: Protocol(plan_leg1=_leg1_on_every_delivery)),
    SeededBug(
        "parent stays open",
        lambda: Protocol(plan_leg2=_parent_stays_open),
        shows_without_a_fault=True,
    ),
    SeededBug(
        "trigger trusts the semaphore",
        lambda: Protocol(plan_trigger=_trigger_trusts_the_semaphore),
    ),
]
