"""The waits of a run, grouped by kind."""

from typing import TypeVar

import msgspec

from perdure.core.ids import StepId
from perdure.core.runs.description import Description
from perdure.core.runs.waits import (
    AnswerWait,
    ChildWait,
    JoinWait,
    OperatorWait,
    RetryWait,
    SignalWait,
    TaskWait,
    TimerWait,
)

W = TypeVar("W")


class HookWait(msgspec.Struct, frozen=True):
    """A step of a graph that has waited since `since_ms` for a signal to a topic and key."""

    step: StepId
    topic: str
    key: str
    since_ms: int


class Waits(msgspec.Struct, frozen=True):
    """What a run waits for, each list in the order of steps.

    `hooks` are the `signals` that wait for a topic and key. Only graphs have `joins`.
    """

    hooks: list[HookWait]
    joins: list[JoinWait]
    signals: list[SignalWait] = []
    timers: list[TimerWait] = []
    tasks: list[TaskWait] = []
    retries: list[RetryWait] = []
    children: list[ChildWait] = []
    answers: list[AnswerWait] = []
    parked: list[OperatorWait] = []


def waits_by_kind(description: Description) -> Waits:
    def only(kind: type[W]) -> list[W]:
        return [wait for wait in description.waits if isinstance(wait, kind)]

    signals = only(SignalWait)
    hooks = [
        HookWait(each.step, each.name or "", each.key, each.since_ms)
        for each in signals
        if each.key is not None
    ]
    return Waits(
        hooks,
        only(JoinWait),
        signals,
        only(TimerWait),
        only(TaskWait),
        only(RetryWait),
        only(ChildWait),
        only(AnswerWait),
        only(OperatorWait),
    )
