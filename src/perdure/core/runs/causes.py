"""Which event each event of a run follows from, and which operator's act led to it."""

from copy import copy
from typing import Final, NamedTuple

from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.contract import RUN_STEP, Label
from perdure.core.runs.contract_event import event_id

_LEADS_TO: Final[dict[type[e.Event], type[e.Event]]] = {
    e.ExecutionStarted: e.RunApproved,
    e.ExecutionResumed: e.ExecutionAwaiting,
}
"""Which event of the run an event follows from."""


class EventCause(NamedTuple):
    """The event that came before, and the act; `None` where there is none."""

    event: str | None
    signal: str | None = None


class Causes:
    """Takes the entries of one run in order.

    An effect of an act follows from the acceptance of the act. Any other event of a step follows from the one before it
    of that step. Events of a retried step name the act that retried it.
    """

    def __init__(self, run_id: RunId, continued: str | None) -> None:
        """`continued` is the last event of the run that this one continues."""
        self._run_id = run_id
        self._continued = continued
        self._last: dict[str, int] = {}
        """The last entry of each step."""
        self._accepted: dict[str, int] = {}
        """The acceptance of each act, by its signal id."""
        self._retried_by: dict[StepId, str] = {}
        self._delivered: dict[tuple[str, int], int] = {}
        """Deliveries that the program has not received."""
        self._cancel: tuple[int, str | None] | None = None
        """The entry of the cancel request, and its act."""
        self._of_run: dict[type[e.Event], int] = {}
        """The last pause, wait and approval."""

    @property
    def steps(self) -> int:
        return len(self._last)

    def copied(self) -> "Causes":
        """Causes that continue where these are."""
        other = copy(self)
        other._last, other._accepted = self._last.copy(), self._accepted.copy()
        other._retried_by, other._delivered = self._retried_by.copy(), self._delivered.copy()
        other._of_run = self._of_run.copy()
        return other

    def next(self, seq: int, event: e.Event, label: Label) -> EventCause:
        """The cause of the entry `seq`."""
        if label.step != RUN_STEP:
            return self._of_step(seq, event, StepId(label.step))
        return self._of_the_run(seq, event)

    def _of_step(self, seq: int, event: e.Event, step: StepId) -> EventCause:
        before, signal = self._last.get(step), self._retried_by.get(step)
        self._last[step] = seq
        if isinstance(event, e.SignalReceived):
            before = self._delivered.pop((event.signal_name, event.delivery_id), before)
        elif isinstance(event, e.StepSkipped) and event.signal_id is not None:
            signal = event.signal_id
            before = self._accepted.get(signal, before)
        return self._cause(before, signal)

    def _of_the_run(self, seq: int, event: e.Event) -> EventCause:
        match event:
            case e.ExecutionStarted() if event.continues is not None:
                return EventCause(self._continued)
            case e.ExecutionStarted() | e.ExecutionResumed():
                return self._cause(self._of_run.get(_LEADS_TO[type(event)]))
            case e.RunApproved() | e.ExecutionAwaiting():
                self._of_run[type(event)] = seq
            case e.SignalAccepted() | e.SignalRejected():
                return self._decision(seq, event)
            case e.RunPaused() | e.RunResumed() | e.CancelRequested():
                return self._effect(seq, event)
            case e.ExecutionCancelled() if self._cancel is not None:
                return self._cause(*self._cancel)
            case e.SignalDelivered():
                self._delivered[event.signal_name, event.delivery_id] = seq
            case _:
                pass
        return EventCause(None)

    def _decision(self, seq: int, event: e.SignalAccepted | e.SignalRejected) -> EventCause:
        if isinstance(event, e.SignalRejected):
            return EventCause(None, event.signal_id)
        self._accepted[event.signal_id] = seq
        if event.signal_type == e.ActType.RETRY_STEP and event.step is not None:
            self._last[event.step] = seq
            self._retried_by[event.step] = event.signal_id
        return EventCause(None, event.signal_id)

    def _effect(
        self, seq: int, event: e.RunPaused | e.RunResumed | e.CancelRequested
    ) -> EventCause:
        signal = event.signal_id
        before = None if signal is None else self._accepted.get(signal)
        if isinstance(event, e.RunPaused):
            self._of_run[e.RunPaused] = seq
        elif isinstance(event, e.RunResumed):
            before = self._of_run.get(e.RunPaused) if before is None else before
        else:
            self._cancel = seq, signal
        return self._cause(before, signal)

    def _cause(self, seq: int | None, signal: str | None = None) -> EventCause:
        return EventCause(None if seq is None else event_id(self._run_id, seq), signal)
