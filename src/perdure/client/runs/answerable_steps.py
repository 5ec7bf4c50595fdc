"""The steps of a graph run that a caller may answer with `Handle.respond`."""

from collections.abc import Sequence

from perdure.core.codec import Codec
from perdure.core.errors import UnknownStep
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.engine.graph.answers import returned_answer

AnswerableSteps = dict[StepId, bool]
"""Steps that called a task or a program, in their order, and whether each is open."""


def answerable_steps(entries: Sequence[Entry], codec: Codec) -> AnswerableSteps:
    """The steps of a graph run that called a task or another program, from its journal."""
    steps: AnswerableSteps = {}
    for entry in entries:
        match entry.event:
            case e.InvokeScheduled(promise_id=step, staged=True):
                steps[step] = True
            case e.InvokeCompleted(promise_id=step, ok=ok, payload=payload) if step in steps:
                steps[step] = ok and returned_answer(codec, payload).is_pending
            case e.SignalReceived(promise_id=step, stays=stays) if step in steps:
                steps[step] = stays
            case _:
                pass
    return steps


def find_step(run_id: RunId, name: str, steps: AnswerableSteps) -> StepId:
    """The step with that id; or, if `name` is an activity, its open step, or else its last step."""
    if name in steps:
        return StepId(name)
    of_activity = [step for step in steps if step.partition(",")[0] == name]
    is_open = [step for step in of_activity if steps[step]]
    if len(is_open) > 1:
        raise UnknownStep(
            f"activity {name!r} of run {run_id!r} has {len(is_open)} open steps",
            f"name one of its steps: {_listed(is_open)}",
        )
    if not of_activity:
        raise _unknown(run_id, f"has no step {name!r}", steps)
    return (is_open or of_activity)[-1]


def require_answerable(run_id: RunId, step: StepId, steps: AnswerableSteps) -> None:
    if not steps[step]:
        raise _unknown(run_id, f"does not wait for an answer to step {step!r}", steps)


def _unknown(run_id: RunId, what: str, steps: AnswerableSteps) -> UnknownStep:
    is_open = [step for step in steps if steps[step]]
    remedy = f"its open steps are {_listed(is_open)}" if is_open else "none of its steps is open"
    return UnknownStep(f"run {run_id!r} {what}", remedy)


def _listed(steps: list[StepId]) -> str:
    return ", ".join(map(repr, steps))
