"""The cost of describing a run grows with its journal, not with the square of it."""

from typing import Any

import msgspec

from perdure.core.ids import StepId
from perdure.core.journal import events as e
from perdure.core.runs.description import DescribedSteps


class CountedStep(str):
    """A step id that counts how often it is looked up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        CountedStep.looked_up += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class Written(msgspec.Struct):
    """What is read of an entry."""

    event: Any
    at_ms: int = 0


def test_a_wait_costs_the_same_after_many_waits() -> None:
    waits = 500
    CountedStep.looked_up = 0
    steps = DescribedSteps([Written(_waits_for(number)) for number in range(waits)])  # type: ignore[misc]
    assert len(steps.awaited_since) == waits
    assert CountedStep.looked_up <= 10 * waits


def _waits_for(number: int) -> e.ExecutionAwaiting:
    step = StepId(CountedStep(f"root.{number}"))
    return e.ExecutionAwaiting(waiting_on=(step,), kind=e.AwaitKind.SINGLE)
