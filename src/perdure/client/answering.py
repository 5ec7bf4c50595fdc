"""Which steps of a graph run can be answered from outside."""

from collections.abc import Sequence

from perdure.core.codec import Codec
from perdure.core.errors import UnknownStep
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.engine.graph.answers import answer_of

Steps = dict[StepId, bool]
"""The steps that asked somebody, and whether they are open."""


def begun_steps(entries: Sequence[Entry], codec: Codec) -> Steps:
    """The steps of a graph that asked a task or another program, in their order."""
    begun: Steps = {}
    for entry in entries:
        match entry.event:
            case e.InvokeScheduled(promise_id=step, staged=True):
                begun[step] = True
            case e.InvokeCompleted(promise_id=step, ok=ok, payload=payload) if step in begun:
                begun[step] = ok and answer_of(codec, payload).is_pending
            case e.SignalReceived(promise_id=step, stays=stays) if step in begun:
                begun[step] = stays
            case _:
                pass
    return begun


def named_step(run_id: RunId, name: str, begun: Steps) -> StepId:
    """The step of that id; or the one of that activity which is open, or was last."""
    if name in begun:
        return StepId(name)
    named = [step for step in begun if step.partition(",")[0] == name]
    is_open = [step for step in named if begun[step]]
    if len(is_open) > 1:
        raise UnknownStep(
            f"activity {name!r} of run {run_id!r} is under way {len(is_open)} times",
            f"name one of its steps: {_listed(is_open)}",
        )
    if not named:
        raise _unknown(run_id, f"has no step {name!r}", begun)
    return (is_open or named)[-1]


def require_open(run_id: RunId, step: StepId, begun: Steps) -> None:
    if not begun[step]:
        raise _unknown(run_id, f"does not wait for an answer of step {step!r}", begun)


def _unknown(run_id: RunId, what: str, begun: Steps) -> UnknownStep:
    is_open = [step for step in begun if begun[step]]
    remedy = f"its open steps are {_listed(is_open)}" if is_open else "none of its steps is open"
    return UnknownStep(f"run {run_id!r} {what}", remedy)


def _listed(steps: list[StepId]) -> str:
    return ", ".join(map(repr, steps))
