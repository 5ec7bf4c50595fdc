"""What follows from a step: which activities begin, which are skipped, which joins wait for more predecessors.

A walk is pure. It follows the arrows of one vertex, evaluates inline vertices and stops at activities. An arrow that is
not taken carries a *skip*, so every arrow of a plane is resolved exactly once and no join waits for ever. The engine
commits what a walk found.
"""

from collections import deque
from typing import Any, Final, TypeAlias

from perdure.core.codec import Codec
from perdure.core.errors import ReadinessOverflow
from perdure.core.expressions import Expression, Meter
from perdure.core.graph.fields import PARAMS
from perdure.core.graph.identity import require_computed_name
from perdure.core.graph.joining import (
    join_item,
    joined,
    joined_variables,
    spread_items,
    stored_form,
)
from perdure.core.graph.model import DONE, ERROR, PENDING, TIMEOUT
from perdure.core.graph.state import GraphState, Join, LoopIteration, VariableScope
from perdure.core.graph.step_error import (
    StepError,
    bound_step_error,
    named_step_error,
    step_error_from,
)
from perdure.core.graph.transition import (
    PASSED,
    InboxValue,
    PendingItems,
    StartingStep,
    StepResponse,
)
from perdure.core.graph.vertex import Arrow, Inline, Mapped, Plane, Primitive, RaisedError, Vertex
from perdure.core.ids import StepId

NOT_AN_ITEM: Final = -1
_NO_SPECIALS: Final[dict[str, Any]] = {}

ARROW_WORK: Final = 50
"""Cost of resolving one arrow, in expression operations; the arrow's own expressions count separately."""

LeftIterations: TypeAlias = tuple[LoopIteration, ...]
"""Loop iterations that a skip has left. If one of them repeats, the steps behind it are not skipped: the next iteration
reaches them, in a plane of its own."""


class Walk:
    """One transition. `error` is set if no arrow handles an error: the run fails with it.

    `leave` takes the step's response; `advance` then resolves arrows up to a limit on work. The division into calls of
    `advance` does not change the result.
    """

    def __init__(self, state: GraphState, codec: Codec) -> None:
        self._state = state
        self._codec = codec
        self.begun: list[StartingStep] = []
        self.skipped: list[StepId] = []
        self.tracked: dict[StepId, tuple[int, int]] = {}
        """Joins that are not ready: arrows required, and arrows that this walk resolved."""
        self._delivered: dict[StepId, list[InboxValue]] = {}
        self.ready: list[StepId] = []
        """Joins that had index rows and are ready now."""
        self.error: StepError | None = None
        self.stays = False
        """Whether the step stays open for another response."""
        self._queue: deque[
            tuple[Arrow, Plane, VariableScope | None, LeftIterations] | PendingItems
        ] = deque()
        self._meter = Meter()

    @property
    def delivered(self) -> list[InboxValue]:
        """Values that this walk brought to joins that are not ready."""
        return [each for given in self._delivered.values() for each in given]

    # The response and its arrows

    def leave(
        self, vertex: Vertex, plane: Plane, scope: VariableScope, response: StepResponse
    ) -> None:
        """Take the response of the step at `vertex`. `plane` is the plane of the vertices behind it.

        An expression that fails on the response ends the step with that error, even if the step was to respond again.
        """
        if response.error is not None:
            self._follow_error(vertex, plane, scope, response, response.error)
        else:
            try:
                scope = self._apply_response(vertex, scope, response)
                chosen = self._choose(vertex, scope, response)
            except Exception as error:  # an expression of the step raised: the step fails
                step_error = step_error_from(error)
                self._follow_error(vertex, plane, scope, StepResponse(error=step_error), step_error)
            else:
                self.stays = response.is_pending
                self._enqueue_arrows(vertex, plane, scope, response, chosen)

    def _apply_response(
        self, vertex: Vertex, scope: VariableScope, response: StepResponse
    ) -> VariableScope:
        """The scope after the step, with its outputs; sets job data."""
        if vertex.output is None:
            scope = {**scope, vertex.name: response.result}
        elif vertex.output or vertex.job:
            specials = response.specials()
            scope = self._map(vertex.output, scope, specials)
            self.set_job_data(vertex.job, scope, specials)
            return scope
        if vertex.job:
            self.set_job_data(vertex.job, scope, response.specials())
        return scope

    def _map(self, mapped: Mapped, scope: VariableScope, specials: dict[str, Any]) -> VariableScope:
        if not mapped:
            return scope
        found = {name: self.value(text, scope, specials) for name, text in mapped}
        return {**scope, **found}

    def set_job_data(self, mapped: Mapped, scope: VariableScope, specials: dict[str, Any]) -> None:
        """Set job data."""
        for name, text in mapped:
            self._state.job = {**self._state.job, name: self.value(text, scope, specials)}

    def value(
        self, text: Expression, scope: VariableScope, specials: dict[str, Any] = _NO_SPECIALS
    ) -> Any:
        """Evaluate an expression. `job` is the run's job data, `params` its parameters; other names are variables."""
        seen = {}
        for name in text.names:
            if name in specials:
                seen[name] = specials[name]
            elif name == "job":
                seen[name] = self._state.job
            elif name in scope:
                seen[name] = scope[name]
            elif name == PARAMS and self._state.params is not None:
                seen[name] = self._state.params
        return text.evaluate(seen, self._meter)

    def _choose(self, vertex: Vertex, scope: VariableScope, response: StepResponse) -> list[Arrow]:
        """The arrows that the response takes."""
        accepted = (PENDING, "202") if response.is_pending else (DONE, str(response.code))
        is_exclusive = vertex.inline is Inline.BRANCH
        chosen = []
        for arrow in vertex.arrows:
            if arrow.on in accepted:
                if arrow.when is None or self.value(arrow.when, scope, response.specials()):
                    chosen.append(arrow)
                    if is_exclusive:
                        break
        return chosen

    def _follow_error(
        self,
        vertex: Vertex,
        plane: Plane,
        scope: VariableScope,
        response: StepResponse,
        step_error: StepError,
    ) -> None:
        """Follow the one arrow that handles the error; if there is none, the run fails."""
        try:
            arrow = self._handler(vertex, scope, response, step_error)
        except Exception as error:  # the condition raised: no arrow handles that
            arrow, step_error = None, step_error_from(error)
        if arrow is None:
            self.error = self.error or step_error
            return
        if arrow.bind is not None:
            scope = {**scope, arrow.bind: step_error.bound}
        self._enqueue_arrows(vertex, plane, scope, response, [arrow])

    def _handler(
        self, vertex: Vertex, scope: VariableScope, response: StepResponse, step_error: StepError
    ) -> Arrow | None:
        """The first arrow that handles the error. Order: timeout, the error's code, any error."""
        specials = response.specials()
        for on in (*((TIMEOUT,) if response.is_timeout else ()), str(step_error.code), ERROR):
            for arrow in vertex.arrows:
                if arrow.on == on and step_error.is_one_of(arrow.errors):
                    if arrow.when is None or self.value(arrow.when, scope, specials):
                        return arrow
        return None

    def _enqueue_arrows(
        self,
        vertex: Vertex,
        plane: Plane,
        scope: VariableScope,
        response: StepResponse,
        chosen: list[Arrow],
    ) -> None:
        if response.is_pending:
            if not chosen:
                return  # the step stays open, and nothing follows yet
            self._expect_iteration(vertex, plane)
        for arrow in vertex.arrows:
            self._queue.append((arrow, plane, scope if arrow in chosen else None, ()))

    def advance(self, limit: int | None = None) -> int:
        """Resolve arrows until none is left or `limit` operations are spent. Returns the operations spent."""
        queue, meter = self._queue, self._meter
        meter.spent = 0
        while queue and self.error is None and (limit is None or meter.spent < limit):
            first = queue[0]
            if isinstance(first, PendingItems):
                self._send_item(first)
            else:
                queue.popleft()
                self._follow(*first)
        return meter.spent

    @property
    def is_finished(self) -> bool:
        """Whether every arrow is resolved, or an error ended the walk."""
        return not self._queue or self.error is not None

    def _follow(
        self, arrow: Arrow, plane: Plane, scope: VariableScope | None, held: LeftIterations
    ) -> None:
        self._meter.spent += ARROW_WORK + (0 if scope is None else len(scope))
        if scope is not None and arrow.keeps is not None:
            scope = {**scope, arrow.keeps: scope}
        for hook in arrow.leaves:
            iteration = self._leave_loop(hook, plane)
            if scope is None and (iteration.undecided or iteration.repeats):
                held = (*held, iteration)
        self._arrive(arrow, plane, scope, held)

    def _send_item(self, spreading: PendingItems) -> None:
        """Send one item along the spread's arrows. The queue keeps the order that sending all at once would have."""
        number, vertex = spreading.next, spreading.spread
        spreading.next += 1
        if spreading.next == len(spreading.items):
            self._queue.popleft()
        inner = {**spreading.scope, vertex.item: spreading.items[number]}
        if vertex.item_index is not None:
            inner[vertex.item_index] = number
        for arrow in vertex.arrows:
            if self.error is None:
                self._follow(arrow, (*spreading.plane, number), inner, ())

    # Arrivals

    def _arrive(
        self, arrow: Arrow, plane: Plane, scope: VariableScope | None, held: LeftIterations
    ) -> None:
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
        self._count(join, step, is_indexed=not held)
        join.held = (*join.held, *(iteration for iteration in held if iteration not in join.held))
        if scope is not None:
            join.scopes[arrow.order] = arrow, scope
            if join.resolved < join.required:
                self._deliver_variables(arrow, step, scope)
        if join.resolved == join.required:
            del self._state.joins[key]
            self._forget(join, step)
            self._resolve(target, plane, joined(join), join.held)

    def _count(self, join: Join, step: StepId, *, is_indexed: bool = True) -> None:
        if join.resolved >= join.required:
            raise ReadinessOverflow(
                f"step {step!r} has all {join.required} of its predecessors, and another one was resolved",
                "report a bug: the transition was not committed",
            )
        join.resolved += 1
        if is_indexed:
            required, resolved = self.tracked.get(step, (join.required, 0))
            self.tracked[step] = required, resolved + join.resolved - join.indexed
            join.indexed = join.resolved

    def _forget(self, join: Join, step: StepId) -> None:
        """Drop a ready join: its stored index rows are deleted, those of this walk are never written."""
        _, resolved = self.tracked.pop(step, (0, 0))
        self._delivered.pop(step, None)
        if resolved < join.indexed:
            self.ready.append(step)

    def _deliver_variables(self, arrow: Arrow, step: StepId, scope: VariableScope) -> None:
        source = arrow.source.name
        for name in joined_variables(arrow, scope):
            self._deliver(step, source, name, NOT_AN_ITEM, scope[name])

    def _deliver(self, step: StepId, source: str, name: str, position: int, value: Any) -> None:
        stored = stored_form(self._codec, value)
        if stored is not None:
            self._meter.spent += len(stored) >> 4
            given = InboxValue(step, source, name, position, stored)
            self._delivered.setdefault(step, []).append(given)

    def _arrive_at_barrier(self, arrow: Arrow, plane: Plane, scope: VariableScope | None) -> None:
        target = arrow.target
        outer, item = plane[: len(target.positions)], plane[len(target.positions)]
        key, step = (target.index, outer), target.step(outer)
        join = self._state.joins[key]
        self._count(join, step)
        inner = join_item(join, arrow, item, scope)
        if inner is not None and target.collect is not None:
            try:
                value = self.value(target.collect, inner)
            except Exception as error:  # the aggregate fails
                join.error = join.error or step_error_from(error)
            else:
                join.items[item] = arrow.source.name, value
                if join.resolved < join.required:
                    self._deliver(step, arrow.source.name, target.into, item, value)
        if join.resolved == join.required:
            del self._state.joins[key]
            self._forget(join, step)
            values = [join.items[item][1] for item in sorted(join.items)]
            scope = {**join.scope, target.into: values}
            if join.error is None:
                self._resolve(target, outer, scope)
            else:
                self._fail_at(target, outer, scope, join.error)

    def _resolve(
        self, vertex: Vertex, plane: Plane, scope: VariableScope | None, held: LeftIterations = ()
    ) -> None:
        """Begin or skip a vertex whose incoming arrows are all resolved."""
        if vertex.returns_to is not None:
            self._decide_iterations(vertex, plane, is_live=scope is not None)
        if scope is None:
            self._skip(vertex, plane, held)
        elif vertex.inline is not None:
            self._evaluate(vertex, plane, scope)
        else:
            self._begin(vertex, plane, scope)

    def _skip(self, vertex: Vertex, plane: Plane, held: LeftIterations) -> None:
        if vertex.inline is Inline.SPREAD and vertex.aggregate is not None:
            self._skip(vertex.aggregate, plane, held)
            return
        if vertex.primitive is not None:
            self._record_skip(vertex.step(plane), held)
        inner = (*plane, 0) if vertex.opens_planes else plane
        for arrow in vertex.arrows:
            self._queue.append((arrow, inner, None, held))

    def _record_skip(self, step: StepId, held: LeftIterations) -> None:
        """Record a skip, unless a loop iteration before the step repeats; postpone it while that is undecided."""
        if any(iteration.repeats for iteration in held):
            return
        undecided = next((iteration for iteration in held if iteration.undecided), None)
        if undecided is None:
            self.skipped.append(step)
        else:
            undecided.held.append((step, held))

    def _begin(self, vertex: Vertex, plane: Plane, scope: VariableScope) -> None:
        try:
            arguments = self._prepare(vertex, scope)
            name = self._name(vertex, scope)
        except Exception as error:  # the activity never begins; its error edges apply
            self._fail_at(vertex, plane, scope, step_error_from(error))
            return
        self.begun.append(StartingStep(vertex, plane, scope, arguments, name))

    def _prepare(self, vertex: Vertex, scope: VariableScope) -> Any:
        """The evaluated arguments of an activity, or the evaluated fields of its request."""
        part = vertex.request or vertex.sending
        found = {name: self.value(text, scope) for name, text in vertex.arguments}
        if part is None or vertex.arguments:
            return found
        for name in part.__struct_fields__:
            text = getattr(part, name)
            if isinstance(text, Expression) and name != "named_by":
                found[name] = self.value(text, scope)
        return found

    def _name(self, vertex: Vertex, scope: VariableScope) -> str:
        """The computed name of a task, program or topic, else empty. Raises `InputError` for an invalid one."""
        text = getattr(vertex.request or vertex.sending, "named_by", None)
        return "" if text is None else require_computed_name(vertex.name, self.value(text, scope))

    def _fail_at(
        self, vertex: Vertex, plane: Plane, scope: VariableScope, step_error: StepError
    ) -> None:
        inner = (*plane, 0) if vertex.opens_planes else plane
        self._follow_error(vertex, inner, scope, StepResponse(error=step_error), step_error)

    # Inline

    def _evaluate(self, vertex: Vertex, plane: Plane, scope: VariableScope) -> None:
        try:
            if vertex.inline is Inline.SPREAD:
                self._spread(vertex, plane, scope)
                return
            if vertex.inline is Inline.OUTPUT and vertex.value is not None:
                self._state.output(self.value(vertex.value, scope))
                return
            for name, text in vertex.assigns:
                scope = {**scope, name: self.value(text, scope)}
            self.set_job_data(vertex.job, scope, _NO_SPECIALS)
            if vertex.fault is not None:
                self._fail_at(vertex, plane, scope, self._raised(vertex.fault, scope))
                return
            chosen = self._choose(vertex, scope, PASSED)
        except Exception as error:
            self._fail_at(vertex, plane, scope, step_error_from(error))
        else:
            self._enqueue_arrows(vertex, plane, scope, PASSED, chosen)

    def _raised(self, fault: RaisedError, scope: VariableScope) -> StepError:
        if fault.again is not None:
            bound = bound_step_error(scope.get(fault.again))
            if bound is not None:
                return bound
        message = "" if fault.message is None else self.value(fault.message, scope)
        return named_step_error(fault.error or "RuntimeError", str(message), fault.bases)

    def _spread(self, vertex: Vertex, plane: Plane, scope: VariableScope) -> None:
        aggregate = vertex.aggregate
        assert vertex.items is not None and aggregate is not None  # noqa: S101, PT018 - lowered so
        items = spread_items(self.value(vertex.items, scope))
        if not items:
            self._resolve(aggregate, plane, {**scope, aggregate.into: []})
            return
        key, step = (aggregate.index, plane), aggregate.step(plane)
        self._state.joins[key] = Join(len(items) * aggregate.required, scope)
        self.tracked[step] = len(items) * aggregate.required, 0
        self._queue.append(PendingItems(vertex, plane, scope, items))

    # Loops

    def _leave_loop(self, hook: Vertex, plane: Plane) -> LoopIteration:
        """Count an arrow out of the loop as resolved."""
        iteration = self._state.iteration(hook, plane)
        iteration.unresolved -= 1
        self._state.drop_if_done(hook, plane, iteration)
        return iteration

    def _decide_iterations(self, cycle: Vertex, plane: Plane, *, is_live: bool) -> None:
        """A cycle activity was reached or skipped, which helps to decide its loop and the loops around it."""
        hook = cycle.returns_to
        assert hook is not None  # noqa: S101 - asked before
        if is_live:
            iteration = self._state.iteration(hook, plane)
            iteration.repeats = True
            iteration.held = []
            self._state.count_iterations(hook, plane, 1)
            self._expect_iteration(hook, plane)
        for around in cycle.decides:
            iteration = self._state.iteration(around, plane)
            iteration.undecided -= 1
            self._state.drop_if_done(around, plane, iteration)
            if not iteration.undecided:
                self._state.count_iterations(around, plane, -1)
                undecided_skips, iteration.held = iteration.held, []
                for step, held in undecided_skips:
                    self._record_skip(step, held)

    def _expect_iteration(self, vertex: Vertex, plane: Plane) -> None:
        """Expect one more plane of the vertex, which brings cycle activities and exits to the loops around it."""
        for hook, cycles, exits in vertex.again:
            iteration = self._state.iteration(hook, plane)
            iteration.undecided += cycles
            iteration.unresolved += exits
