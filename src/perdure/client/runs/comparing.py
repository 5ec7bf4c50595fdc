"""Compares two runs of a store, with their values decoded."""

from typing import Any

import msgspec

from perdure.client.runs.rows import require_run
from perdure.core.codec import Codec
from perdure.core.ids import RunId
from perdure.core.runs.diff import StepChange, StepFacts, compare_journals
from perdure.store.store import Store


class StepSide(msgspec.Struct, frozen=True):
    """A step in one of two runs. An output is a result, an error or a signal's value."""

    name: str
    status: str
    input: Any
    output: Any


class StepDiff(msgspec.Struct, frozen=True):
    """How a step of run `b` compares with the same step of run `a`; `None` in a run that has not begun it."""

    step: str
    change: StepChange
    a: StepSide | None
    b: StepSide | None


class RunDiff(msgspec.Struct, frozen=True):
    """The differences of two runs. `first` is the first entry that differs, apart from times and the runs' own ids."""

    a: RunId
    b: RunId
    first: int | None
    steps: tuple[StepDiff, ...]

    @property
    def changes(self) -> tuple[StepDiff, ...]:
        """The steps that are not the same."""
        return tuple(step for step in self.steps if step.change is not StepChange.SAME)


async def compare_runs(store: Store, codec: Codec, a: RunId, b: RunId) -> RunDiff:
    journals = []
    for run_id in (a, b):
        run = await require_run(store, run_id)
        journals.append([entry.event for entry in await store.entries(run_id, 0, run.seq)])
    found = compare_journals((a, journals[0]), (b, journals[1]))
    steps = tuple(
        StepDiff(each.step, each.change, _side(codec, each.a), _side(codec, each.b))
        for each in found.steps
    )
    return RunDiff(a, b, found.first, steps)


def _side(codec: Codec, facts: StepFacts | None) -> StepSide | None:
    if facts is None:
        return None
    values = [
        None if each is None else codec.decode(each, object) for each in (facts.input, facts.output)
    ]
    return StepSide(facts.name, facts.status, *values)
