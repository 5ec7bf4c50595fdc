"""Compares two runs: where their journals part, and what became of each step."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any, Final

import msgspec

from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId

_TIMES: Final = ("fire_at_ms", "retry_at_ms", "time_us")


class StepChange(StrEnum):
    """How a step of run `b` compares with the same step of run `a`."""

    SAME = "same"
    ONLY_IN_A = "only in a"
    ONLY_IN_B = "only in b"
    INPUT = "input differs"
    OUTPUT = "output differs"
    STATUS = "status differs"


class StepFacts(msgspec.Struct, frozen=True):
    """What a journal says of a step: the task or program that it calls, its status, and codec bytes."""

    name: str
    status: str = "open"
    input: bytes | None = None
    output: bytes | None = None


class StepComparison(msgspec.Struct, frozen=True):
    """One step in both runs; `None` in a run that has not begun it."""

    step: StepId
    change: StepChange
    a: StepFacts | None
    b: StepFacts | None


class Comparison(msgspec.Struct, frozen=True):
    """The differences of two journals.

    `first` is the number of the first entry that differs, apart from times and the runs' own ids; `None` if none does.
    """

    first: int | None
    steps: tuple[StepComparison, ...]

    @property
    def is_same(self) -> bool:
        return self.first is None


def compare_journals(
    a: tuple[RunId, Sequence[e.Event]], b: tuple[RunId, Sequence[e.Event]]
) -> Comparison:
    """Compare two runs, each given by its id and its events."""
    pairs = zip_longest(
        (_normal(a[0], event) for event in a[1]), (_normal(b[0], event) for event in b[1])
    )
    first = next((seq for seq, (left, right) in enumerate(pairs) if left != right), None)
    in_a, in_b = _steps(a[1]), _steps(b[1])
    steps = [
        StepComparison(
            step, _change(in_a.get(step), in_b.get(step)), in_a.get(step), in_b.get(step)
        )
        for step in {**in_a, **in_b}
    ]
    return Comparison(first, tuple(steps))


def _change(a: StepFacts | None, b: StepFacts | None) -> StepChange:
    if b is None:
        return StepChange.ONLY_IN_A
    if a is None:
        return StepChange.ONLY_IN_B
    if (a.name, a.input) != (b.name, b.input):
        return StepChange.INPUT
    if a.status != b.status:
        return StepChange.STATUS
    return StepChange.SAME if a.output == b.output else StepChange.OUTPUT


def _steps(journal: Sequence[e.Event]) -> dict[StepId, StepFacts]:
    found: dict[StepId, StepFacts] = {}

    def settle(step: StepId, name: str, status: str, output: bytes | None = None) -> None:
        facts = found.get(step, StepFacts(name))
        found[step] = msgspec.structs.replace(facts, status=status, output=output)

    for event in journal:
        match event:
            case e.InvokeScheduled(promise_id=step, function_name=name, payload=given):
                found[step] = StepFacts(name, input=given)
            case e.TimerScheduled(promise_id=step):
                found[step] = StepFacts("timer")
            case e.InvokeCompleted(promise_id=step, ok=ok, payload=output):
                settle(step, "", "completed" if ok else "failed", output)
            case e.SignalReceived(promise_id=step, signal_name=name, payload=value):
                settle(step, name.partition("@")[0], "received", value)
            case e.TimerFired(promise_id=step):
                settle(step, "timer", "fired")
            case e.StepSkipped(promise_id=step, payload=value):
                settle(step, "", "skipped", value)
            case e.InvokeRetrying(promise_id=step) if event.parks:
                settle(step, "", "parked")
            case _:
                pass
    return found


def _normal(run_id: RunId, event: e.Event) -> e.Event:
    """The event without times, and without the run's own id in the GUIDs of messages."""
    changes: dict[str, Any] = {name: 0 for name in _TIMES if hasattr(event, name)}
    own = run_id[2:]
    if isinstance(event, e.ExecutionStarted):
        changes |= {"root": "", "forks": None, "seed": None}
    if isinstance(guid := getattr(event, "guid", None), str):
        changes["guid"] = guid.replace(own, "")
    if isinstance(event, e.Posted):
        changes["postings"] = tuple(_anonymous(each, own) for each in event.postings)
    return msgspec.structs.replace(event, **changes) if changes else event


def _anonymous(posting: e.Posting, own: str) -> e.Posting:
    return msgspec.structs.replace(posting, account=AccountId(posting.account.replace(own, "")))
