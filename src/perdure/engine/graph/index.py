"""The index of a graph run: its waiting joins, the values given to them, and its hooks. A function of the journal.

Clients and other hosts read the rows of readiness, inbox and hooks to learn what a run waits for. The run itself never
reads them: a replay of its journal gives the same in memory. So lost rows can be rebuilt, and wrong ones detected.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from perdure.core.graph.identity import NO_KEY, mailbox_of
from perdure.core.graph.joining import joined_variables, stored_form
from perdure.core.graph.state import Join
from perdure.core.graph.vertex import Primitive, SignalRequest, Vertex
from perdure.core.graph.walk import NOT_AN_ITEM
from perdure.core.ids import RunId, StepId
from perdure.engine.runs.effects import (
    AddHook,
    Deliver,
    RecordedChange,
    RemoveHook,
    SetReady,
    TrackJoin,
    UntrackAll,
)
from perdure.store.rows.records import InboxRow, ReadinessRow

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine

Given: TypeAlias = tuple[StepId, int, str, str]
"""Receiving step, item number, source step, variable name: the order of the inbox."""


class Index(msgspec.Struct):
    """The index of one run: required and completed inputs by join, given values, and mailboxes by waiting step."""

    waiting: dict[StepId, tuple[int, int]] = {}
    given: dict[Given, bytes] = {}
    hooks: dict[StepId, RunId] = {}

    @property
    def readiness(self) -> list[ReadinessRow]:
        """The rows, in the order of the store."""
        return [ReadinessRow(step, *counts) for step, counts in sorted(self.waiting.items())]

    @property
    def inbox(self) -> list[InboxRow]:
        """The rows, in the order of the store."""
        return [
            InboxRow(step, StepId(source), variable, position, value)
            for (step, position, source, variable), value in sorted(self.given.items())
        ]

    def follow(self, changes: Iterable[RecordedChange]) -> None:
        """Apply the effects of these changes."""
        for change in changes:
            for effect in change.effects:
                match effect:
                    case TrackJoin(step, required, resolved):
                        before = self.waiting.get(step, (required, 0))[1]
                        self.waiting[step] = required, before + resolved
                    case Deliver(given):
                        key = given.step, given.position, given.source, given.variable
                        self.given[key] = given.value
                    case SetReady(step):
                        self.waiting.pop(step, None)
                        self.given = {key: v for key, v in self.given.items() if key[0] != step}
                    case AddHook(step, mailbox, "wait"):
                        self.hooks[step] = mailbox
                    case RemoveHook(step):
                        self.hooks.pop(step, None)
                    case UntrackAll():
                        self.waiting, self.given, self.hooks = {}, {}, {}
                    case _:
                        pass


def stored_index(
    readiness: Sequence[ReadinessRow],
    inbox: Sequence[InboxRow],
    hooks: Iterable[tuple[StepId, RunId]],
) -> Index:
    """The index as stored."""
    return Index(
        {row.step: (row.required, row.completed) for row in readiness},
        {(row.step, row.position, row.source, row.variable): row.value for row in inbox},
        dict(hooks),
    )


def index_of(machine: "GraphMachine") -> Index:
    """The index of a run in memory: what its rows must be once all its decisions are durable."""
    index = Index()
    if machine.is_over:
        return index
    vertices = machine.workflow.lowered.vertices
    for (number, plane), join in machine.state.joins.items():
        vertex = vertices[number]
        step = vertex.step(plane)
        if join.indexed:
            index.waiting[step] = join.required, join.indexed
        index.given.update(_given(machine, vertex, step, join))
    for waiting in machine.steps.values():
        request = waiting.vertex.request
        if isinstance(request, SignalRequest):
            key = waiting.key or NO_KEY
            index.hooks[waiting.step] = mailbox_of(waiting.topic, key, machine.tenant)
    return index


def _given(
    machine: "GraphMachine", vertex: Vertex, step: StepId, join: Join
) -> Iterable[tuple[Given, bytes]]:
    if vertex.primitive is Primitive.BARRIER:
        for item, (source, value) in join.items.items():
            stored = stored_form(machine.codec, value)
            if stored is not None:
                yield (step, item, source, vertex.into), stored
        return
    for arrow, scope in join.scopes.values():
        for name in joined_variables(arrow, scope):
            stored = stored_form(machine.codec, scope[name])
            if stored is not None:
                yield (step, NOT_AN_ITEM, arrow.source.name, name), stored
