"""What follows from a step: which activities begin, which are skipped, which joins wait for more.

Pure: a walk goes from one vertex along its arrows, evaluates what is inline, and stops at activities. An arrow that is
not taken carries a *skip*, so that every arrow of a plane is resolved once and no join waits for what never
comes. What the walk finds is committed by whoever asked for it; the plan of a run is its sequence of walks.
"""

from collections import deque
from typing import Any, Final, TypeAlias

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import ReadinessOverflow
from perdure.core.expressions import Expression
from perdure.core.graph.joining import joined, joined_variables, stored_form
from perdure.core.graph.model import DONE, ERROR, PENDING, TIMEOUT
from perdure.core.graph.state import GraphState, Join, Loop, Scope
from perdure.core.graph.trouble import Trouble, bound_trouble, named_trouble, trouble_of
from perdure.core.graph.vertex import Arrow, Fault, Inline, Mapped, Plane, Primitive, Vertex
from perdure.core.ids import StepId

NOT_AN_ITEM: Final = -1
_NO_SPECIALS: Final[dict[str, Any]] = {}

Held: TypeAlias = tuple[Loop, ...]
"""The turns of loops that a skip has led out of: if one of them turns, what it leads to is not skipped but still to
come, in a plane of its own."""


class Answer(msgspec.Struct, frozen=True):
    """How a step ended, this time: with a result under a code, or in trouble."""

    result: Any = None
    code: int = 200
    trouble: Trouble | None = None
    is_timeout: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether it says that more will come. The walk tells whether the step stays for that."""
        return self.trouble is None and self.code == 202

    def specials(self) -> dict[str, Any]:
        """What only the step's own expressions see."""
        if self.trouble is None:
            return {"result": self.result, "code": self.code, "error": None}
        return {"result": self.result, "code": self.trouble.code, "error": self.trouble.value}


PASSED: Final = Answer()


class Begun(msgspec.Struct, frozen=True, gc=False):
    """An activity that is to begin, with its arguments evaluated."""

    vertex: Vertex
    plane: Plane
    scope: Scope
    arguments: Any


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """What a join has been given, for the index of inboxes."""

    step: StepId
    source: str
    variable: str
    position: int
    value: bytes


class Walk:
    """One transition. `trouble` is set if it can't go on, and the run fails by it."""

    def __init__(self, state: GraphState, codec: Codec) -> None:
        self._state = state
        self._codec = codec
        self.begun: list[Begun] = []
        self.skipped: list[StepId] = []
        self.tracked: dict[StepId, tuple[int, int]] = {}
        """Joins that are not ready: what they require, and how much of it this walk has resolved."""
        self.delivered: list[Delivered] = []
        self.ready: list[StepId] = []
        """Joins that were waiting, and are not any more."""
        self.trouble: Trouble | None = None
        self.stays = False
        """Whether the step that it left stays open for another answer."""
        self._queue: deque[tuple[Arrow, Plane, Scope | None, Held]] = deque()

    # The way on

    def leave(self, vertex: Vertex, plane: Plane, scope: Scope, answer: Answer) -> None:
        """The step at `vertex` has its answer. `plane` is that of what follows it.

        What goes wrong with the answer ends the step as an error does, whether or not more were to come.
        """
        if answer.trouble is not None:
            self._go_wrong(vertex, plane, scope, answer, answer.trouble)
        else:
            try:
                scope = self._take_in(vertex, scope, answer)
                chosen = self._choose(vertex, scope, answer)
            except Exception as error:  # whatever an expression raises is the step's own failure
                trouble = trouble_of(error)
                self._go_wrong(vertex, plane, scope, Answer(trouble=trouble), trouble)
            else:
                self.stays = answer.is_pending
                self._go(vertex, plane, scope, answer, chosen)
        self._run()

    def _take_in(self, vertex: Vertex, scope: Scope, answer: Answer) -> Scope:
        """The scope after the step: its outputs are set, and what it says of the job."""
        if vertex.output is None:
            scope = {**scope, vertex.name: answer.result}
        elif vertex.output or vertex.job:
            specials = answer.specials()
            scope = self._map(vertex.output, scope, specials)
            self._tell_job(vertex.job, scope, specials)
            return scope
        if vertex.job:
            self._tell_job(vertex.job, scope, answer.specials())
        return scope

    def _map(self, mapped: Mapped, scope: Scope, specials: dict[str, Any]) -> Scope:
        if not mapped:
            return scope
        found = {name: self.value(text, scope, specials) for name, text in mapped}
        return {**scope, **found}

    def _tell_job(self, mapped: Mapped, scope: Scope, specials: dict[str, Any]) -> None:
        for name, text in mapped:
            self._state.job = {**self._state.job, name: self.value(text, scope, specials)}

    def value(self, text: Expression, scope: Scope, specials: dict[str, Any] = _NO_SPECIALS) -> Any:
        """What an expression says here. `job` is the run's; other names are variables."""
        seen = {}
        for name in text.names:
            if name in specials:
                seen[name] = specials[name]
            elif name == "job":
                seen[name] = self._state.job
            elif name in scope:
                seen[name] = scope[name]
        return text.evaluate(seen)

    def _choose(self, vertex: Vertex, scope: Scope, answer: Answer) -> list[Arrow]:
        """The arrows along which it goes on."""
        accepted = (PENDING, "202") if answer.is_pending else (DONE, str(answer.code))
        is_exclusive = vertex.inline is Inline.BRANCH
        chosen = []
        for arrow in vertex.arrows:
            if arrow.on in accepted:
                if arrow.when is None or self.value(arrow.when, scope, answer.specials()):
                    chosen.append(arrow)
                    if is_exclusive:
                        break
        return chosen

    def _go_wrong(
        self, vertex: Vertex, plane: Plane, scope: Scope, answer: Answer, trouble: Trouble
    ) -> None:
        """Along the one arrow that is for this trouble; or the run fails."""
        try:
            arrow = self._handler(vertex, scope, answer, trouble)
        except Exception as error:  # a condition's own failure, which no arrow is for
            arrow, trouble = None, trouble_of(error)
        if arrow is None:
            self.trouble = self.trouble or trouble
            return
        if arrow.bind is not None:
            scope = {**scope, arrow.bind: trouble.bound}
        self._go(vertex, plane, scope, answer, [arrow])

    def _handler(
        self, vertex: Vertex, scope: Scope, answer: Answer, trouble: Trouble
    ) -> Arrow | None:
        """The first arrow that is for this trouble; one for its code goes before one for any."""
        specials = answer.specials()
        for on in (*((TIMEOUT,) if answer.is_timeout else ()), str(trouble.code), ERROR):
            for arrow in vertex.arrows:
                if arrow.on == on and trouble.is_one_of(arrow.errors):
                    if arrow.when is None or self.value(arrow.when, scope, specials):
                        return arrow
        return None

    def _go(
        self, vertex: Vertex, plane: Plane, scope: Scope, answer: Answer, chosen: list[Arrow]
    ) -> None:
        if answer.is_pending:
            if not chosen:
                return  # it stays, and nothing follows from it yet
            self._expect_another(vertex, plane)
        for arrow in vertex.arrows:
            self._queue.append((arrow, plane, scope if arrow in chosen else None, ()))

    def _run(self) -> None:
        while self._queue and self.trouble is None:
            arrow, plane, scope, held = self._queue.popleft()
            if scope is not None and arrow.keeps is not None:
                scope = {**scope, arrow.keeps: scope}
            for hook in arrow.leaves:
                turn = self._leave_loop(hook, plane)
                if scope is None and (turn.undecided or turn.has_turned):
                    held = (*held, turn)
            self._arrive(arrow, plane, scope, held)

    # Arrivals

    def _arrive(self, arrow: Arrow, plane: Plane, scope: Scope | None, held: Held) -> None:
        target = arrow.target
        if target.primitive is Primitive.BARRIER:
            self._arrive_at_barrier(arrow, plane, scope)
            return
        plane = plane[: len(target.positions)]
        if target.required == 1:
            self._resolve(target, plane, scope, held)
            return
        key = target.index, plane
        join = self._state.joins.get(key)
        if join is None:
            join = self._state.joins[key] = Join(target.required)
        step = target.step(plane)
        self._count(join, step, is_told=not held)
        join.held = (*join.held, *(turn for turn in held if turn not in join.held))
        if scope is not None:
            join.scopes[arrow.order] = arrow, scope
            if join.resolved < join.required:
                self._deliver_variables(arrow, step, scope)
        if join.resolved == join.required:
            del self._state.joins[key]
            self._forget(join, step)
            self._resolve(target, plane, joined(join), join.held)

    def _count(self, join: Join, step: StepId, *, is_told: bool = True) -> None:
        if join.resolved >= join.required:
            raise ReadinessOverflow(
                f"step {step!r} has all {join.required} of its predecessors, and one more has come",
                "this is a defect: nothing was changed",
            )
        join.resolved += 1
        if is_told:
            required, resolved = self.tracked.get(step, (join.required, 0))
            self.tracked[step] = required, resolved + join.resolved - join.told
            join.told = join.resolved

    def _forget(self, join: Join, step: StepId) -> None:
        """The join is ready: those of its rows that are stored go, and those of this walk are never written."""
        _, resolved = self.tracked.pop(step, (0, 0))
        if self.delivered:
            self.delivered = [each for each in self.delivered if each.step != step]
        if resolved < join.told:
            self.ready.append(step)

    def _deliver_variables(self, arrow: Arrow, step: StepId, scope: Scope) -> None:
        source = arrow.source.name
        for name in joined_variables(arrow, scope):
            self._deliver(step, source, name, NOT_AN_ITEM, scope[name])

    def _deliver(self, step: StepId, source: str, name: str, position: int, value: Any) -> None:
        stored = stored_form(self._codec, value)
        if stored is not None:
            self.delivered.append(Delivered(step, source, name, position, stored))

    def _arrive_at_barrier(self, arrow: Arrow, plane: Plane, scope: Scope | None) -> None:
        target = arrow.target
        outer, item = plane[: len(target.positions)], plane[len(target.positions)]
        key, step = (target.index, outer), target.step(outer)
        join = self._state.joins[key]
        self._count(join, step)
        inner = self._arrived(join, arrow, item, scope)
        if inner is not None and target.collect is not None:
            try:
                value = self.value(target.collect, inner)
            except Exception as error:  # the expression's own failure is the aggregate's
                join.trouble = join.trouble or trouble_of(error)
            else:
                join.items[item] = arrow.source.name, value
                if join.resolved < join.required:
                    self._deliver(step, arrow.source.name, target.into, item, value)
        if join.resolved == join.required:
            del self._state.joins[key]
            self._forget(join, step)
            values = [join.items[item][1] for item in sorted(join.items)]
            scope = {**join.scope, target.into: values}
            if join.trouble is None:
                self._resolve(target, outer, scope)
            else:
                self._stumble(target, outer, scope, join.trouble)

    def _arrived(self, join: Join, arrow: Arrow, item: int, scope: Scope | None) -> Scope | None:
        """With what an item has come to its end, once all of its arrows are known."""
        required = arrow.target.required
        if required == 1:
            return scope
        part = join.parts.setdefault(item, Join(required))
        part.resolved += 1
        if scope is not None:
            part.scopes[arrow.order] = arrow, scope
        if part.resolved < required:
            return None
        del join.parts[item]
        return joined(part)

    def _resolve(self, vertex: Vertex, plane: Plane, scope: Scope | None, held: Held = ()) -> None:
        """All that leads to the vertex is known: it begins, or is skipped."""
        if vertex.returns_to is not None:
            self._turn(vertex, plane, is_live=scope is not None)
        if scope is None:
            self._skip(vertex, plane, held)
        elif vertex.inline is not None:
            self._evaluate(vertex, plane, scope)
        else:
            self._begin(vertex, plane, scope)

    def _skip(self, vertex: Vertex, plane: Plane, held: Held) -> None:
        if vertex.inline is Inline.SPREAD and vertex.aggregate is not None:
            self._skip(vertex.aggregate, plane, held)
            return
        if vertex.primitive is not None:
            self._tell_skip(vertex.step(plane), held)
        inner = (*plane, 0) if vertex.opens_planes else plane
        for arrow in vertex.arrows:
            self._queue.append((arrow, inner, None, held))

    def _tell_skip(self, step: StepId, held: Held) -> None:
        """A step is skipped for good unless it is behind a loop that turns."""
        if any(turn.has_turned for turn in held):
            return
        undecided = next((turn for turn in held if turn.undecided), None)
        if undecided is None:
            self.skipped.append(step)
        else:
            undecided.held.append((step, held))

    def _begin(self, vertex: Vertex, plane: Plane, scope: Scope) -> None:
        try:
            arguments = self._prepare(vertex, scope)
        except Exception as error:  # the activity never begins; its error edges are for this, too
            self._stumble(vertex, plane, scope, trouble_of(error))
            return
        self.begun.append(Begun(vertex, plane, scope, arguments))

    def _prepare(self, vertex: Vertex, scope: Scope) -> Any:
        """What the activity asks for, evaluated: names and values of its arguments, or of its parts."""
        part = vertex.request or vertex.sending
        found = {name: self.value(text, scope) for name, text in vertex.arguments}
        if part is None or vertex.arguments:
            return found
        for name in part.__struct_fields__:
            text = getattr(part, name)
            if isinstance(text, Expression):
                found[name] = self.value(text, scope)
        return found

    def _stumble(self, vertex: Vertex, plane: Plane, scope: Scope, trouble: Trouble) -> None:
        inner = (*plane, 0) if vertex.opens_planes else plane
        self._go_wrong(vertex, inner, scope, Answer(trouble=trouble), trouble)

    # Inline

    def _evaluate(self, vertex: Vertex, plane: Plane, scope: Scope) -> None:
        try:
            if vertex.inline is Inline.SPREAD:
                self._spread(vertex, plane, scope)
                return
            if vertex.inline is Inline.OUTPUT and vertex.value is not None:
                self._state.output(self.value(vertex.value, scope))
                return
            for name, text in vertex.assigns:
                scope = {**scope, name: self.value(text, scope)}
            self._tell_job(vertex.job, scope, _NO_SPECIALS)
            if vertex.fault is not None:
                self._stumble(vertex, plane, scope, self._raised(vertex.fault, scope))
                return
            chosen = self._choose(vertex, scope, PASSED)
        except Exception as error:  # whatever an expression raises
            self._stumble(vertex, plane, scope, trouble_of(error))
        else:
            self._go(vertex, plane, scope, PASSED, chosen)

    def _raised(self, fault: Fault, scope: Scope) -> Trouble:
        if fault.again is not None:
            bound = bound_trouble(scope.get(fault.again))
            if bound is not None:
                return bound
        message = "" if fault.message is None else self.value(fault.message, scope)
        return named_trouble(fault.error or "RuntimeError", str(message), fault.bases)

    def _spread(self, vertex: Vertex, plane: Plane, scope: Scope) -> None:
        aggregate = vertex.aggregate
        assert vertex.items is not None and aggregate is not None  # noqa: S101, PT018 - lowered so
        items = self.value(vertex.items, scope)
        if not isinstance(items, list | tuple):
            items = _listed(items)
        if not items:
            self._resolve(aggregate, plane, {**scope, aggregate.into: []})
            return
        key, step = (aggregate.index, plane), aggregate.step(plane)
        self._state.joins[key] = Join(len(items) * aggregate.required, scope)
        self.tracked[step] = len(items) * aggregate.required, 0
        for number, item in enumerate(items):
            inner = {**scope, vertex.item: item}
            if vertex.item_index is not None:
                inner[vertex.item_index] = number
            for arrow in vertex.arrows:
                self._queue.append((arrow, (*plane, number), inner, ()))

    # Loops

    def _loop(self, hook: Vertex, plane: Plane) -> Loop:
        key = hook.index, plane[: len(hook.positions) + 1]
        turn = self._state.loops.get(key)
        if turn is None:
            turn = self._state.loops[key] = Loop(hook.cycles, hook.exits)
        return turn

    def _leave_loop(self, hook: Vertex, plane: Plane) -> Loop:
        """Of an arrow that leads out of the loop it is known whether it is taken."""
        turn = self._loop(hook, plane)
        turn.unresolved -= 1
        self._drop_if_done(hook, plane, turn)
        return turn

    def _drop_if_done(self, hook: Vertex, plane: Plane, turn: Loop) -> None:
        """Nothing more is asked of a turn whose way and exits are all known."""
        if not turn.undecided and not turn.unresolved:
            del self._state.loops[hook.index, plane[: len(hook.positions) + 1]]

    def _turn(self, cycle: Vertex, plane: Plane, *, is_live: bool) -> None:
        """A cycle activity is reached, or skipped: that decides about its loop's turn, and those around it."""
        hook = cycle.returns_to
        assert hook is not None  # noqa: S101 - asked before
        if is_live:
            turn = self._loop(hook, plane)
            turn.has_turned = True
            turn.held = []
            self._count_turns(hook, plane, 1)
            self._expect_another(hook, plane)
        for around in cycle.decides:
            turn = self._loop(around, plane)
            turn.undecided -= 1
            self._drop_if_done(around, plane, turn)
            if not turn.undecided:
                self._count_turns(around, plane, -1)
                told, turn.held = turn.held, []
                for step, held in told:
                    self._tell_skip(step, held)

    def _count_turns(self, hook: Vertex, plane: Plane, more: int) -> None:
        """So many more turns may come back to the hook. Where none is left that may, it is forgotten."""
        key = hook.index, plane[: len(hook.positions)]
        entered = self._state.hooks.get(key)
        if entered is None:
            return  # it was skipped, and this with it
        entered.undecided += more
        if not entered.undecided:
            del self._state.hooks[key]

    def _expect_another(self, vertex: Vertex, plane: Plane) -> None:
        """One more plane of the vertex will come, with cycle activities and exits of the loops around it."""
        for hook, cycles, exits in vertex.again:
            turn = self._loop(hook, plane)
            turn.undecided += cycles
            turn.unresolved += exits


def _listed(items: Any) -> list[Any]:
    if isinstance(items, dict | str):
        return list(items)
    raise TypeError(f"a spread over {type(items).__name__}, which has no items")
