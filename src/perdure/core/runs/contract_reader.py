"""Turns the entries of one run's journal into contract events."""

from collections.abc import Collection
from copy import copy
from typing import Any, Final, NamedTuple

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import CorruptJournal, NotDecodable
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.contract import RUN_STEP, EventType, Label, Labelling
from perdure.core.journal.entry import Entry
from perdure.core.runs.causes import Causes, EventCause
from perdure.core.runs.contract_event import ContractEvent, EngineRunRef, event_id
from perdure.core.runs.fingerprint import error_text
from perdure.core.runs.snapshot import ApplicationError

_OWN_COLUMNS: Final = ("type", "promise_id", "ok", "attempt", "failed_attempt")
"""Fields of stored events that a contract event has elsewhere."""

_PAYLOADS: Final[dict[EventType, str]] = {
    EventType.RUN_STARTED: "input",
    EventType.RUN_COMPLETED: "result",
    EventType.RUN_CONTINUED: "input",
    EventType.INVOKE_SCHEDULED: "input",
    EventType.STEP_COMPLETED: "result",
}
"""What a payload is called in the data. All others are values, and those of `_ERRORS` errors."""

_ERRORS: Final = frozenset(
    (
        EventType.RUN_FAILED,
        EventType.STEP_FAILED,
        EventType.INVOKE_RETRYING,
        EventType.INVOKE_COMPLETED,
    )
)


class RunOrigin(NamedTuple):
    """The run whose journal is read, and where it stands in its chain."""

    run_id: RunId
    ref: EngineRunRef
    offset: int = 0
    """The number of entries in the runs of the chain before it."""
    before: RunId | None = None
    """The run that it continues."""
    before_seq: int = 0
    """The number of entries of that run."""


class ContractReader:
    """Reads the entries of one run, which must be given in order from the first.

    A gap raises `CorruptJournal` and changes nothing: give the missing entries next.
    """

    def __init__(self, origin: RunOrigin, codec: Codec) -> None:
        self.origin = origin
        self.seq = 0
        """The number of the next entry."""
        self.last: EventType | None = None
        """The type of the last event that was read or skipped."""
        self._codec = codec
        self._labelling = Labelling()
        self._causes = Causes(origin.run_id, _last_of(origin))
        self._attempts: dict[StepId, tuple[int, int]] = {}
        """Of each open step that may be retried: how many attempts its policy allows, and how many have started under
        its logical attempt."""

    def copied(self) -> "ContractReader":
        """A reader that continues where this one is."""
        other = copy(self)
        other._labelling, other._causes = self._labelling.copied(), self._causes.copied()
        other._attempts = self._attempts.copy()
        return other

    @property
    def size(self) -> int:
        """How many steps it knows."""
        return self._causes.steps + 1

    def skip(self, entry: Entry) -> None:
        """Read an entry whose event is not wanted."""
        self._advance(entry)

    def read(self, entry: Entry) -> ContractEvent:
        """The event of the next entry."""
        return self._event(entry, *self._advance(entry))

    def read_if(self, entry: Entry, types: Collection[str]) -> ContractEvent | None:
        """The event of the next entry if it is of one of these types; its data is not decoded otherwise."""
        event, label, cause = self._advance(entry)
        return self._event(entry, event, label, cause) if label.type in types else None

    def _event(
        self, entry: Entry, event: e.Event, label: Label, cause: EventCause
    ) -> ContractEvent:
        origin, is_of_run = self.origin, label.step == RUN_STEP
        return ContractEvent(
            run_id=origin.run_id,
            seq=entry.seq,
            offset=origin.offset + entry.seq,
            event_id=event_id(origin.run_id, entry.seq),
            type=label.type,
            step=None if is_of_run else StepId(label.step),
            logical_attempt=label.logical_attempt,
            engine_attempt=engine_attempt_of(event),
            data=self._data(entry, event, label),
            idempotency_key=label.key(origin.run_id, origin.ref.version),
            emitted_at_ms=entry.at_ms,
            persisted_at_ms=entry.at_ms,
            engine_run_ref=origin.ref,
            caused_by_signal=cause.signal,
            parent_event=cause.event,
        )

    def missing(self, found: int) -> CorruptJournal:
        """The error that says that the next entry is missing, though there is an entry `found` or a later end."""
        return CorruptJournal(
            f"entry {self.seq} of run {self.origin.run_id!r} is missing: its journal continues at {found}",
            "run `verify` to find what was changed, and restore the rows from a backup",
        )

    def _advance(self, entry: Entry) -> tuple[e.Event, Label, EventCause]:
        if entry.seq != self.seq:
            raise self.missing(entry.seq)
        event = entry.event
        label = self._labelling.label(event)
        cause = self._causes.next(entry.seq, event, label)
        self._count_attempts(event)
        self.seq, self.last = self.seq + 1, label.type
        return event, label, cause

    def _count_attempts(self, event: e.Event) -> None:
        match event:
            case e.InvokeScheduled(promise_id=step, retry_policy=policy) if policy is not None:
                self._attempts[step] = policy.attempts, 0
            case e.InvokeStarted(promise_id=step) if step in self._attempts:
                allowed, started = self._attempts[step]
                self._attempts[step] = allowed, started + 1
            case e.SignalAccepted(signal_type=e.ActType.RETRY_STEP, step=step) if step is not None:
                if step in self._attempts:
                    self._attempts[step] = self._attempts[step][0], 0
            case e.InvokeCompleted(promise_id=step, ok=True) | e.StepSkipped(promise_id=step):
                self._attempts.pop(step, None)
            case _:
                pass

    def _data(self, entry: Entry, event: e.Event, label: Label) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.json.decode(entry.body)
        for name in _OWN_COLUMNS:
            data.pop(name, None)
        if isinstance(event, e.InvokeRetrying) and event.parks:
            del data["retry_at_ms"]
            data["parked"] = True
        payload = entry.payload
        if label.type in _ERRORS:
            error = self._error(event, payload)
            if error is not None:
                data["error"] = msgspec.to_builtins(error)
        elif payload is not None:
            name = _PAYLOADS.get(label.type, "value")
            try:
                data[name] = self._codec.decode(payload, object)
            except NotDecodable as error:
                data["unreadable"] = error.what
        if entry.sealed is None and entry.erased is not None:
            data["erased"] = True
        return data

    def _error(self, event: e.Event, payload: bytes | None) -> ApplicationError | None:
        """The error of a failure; `None` if there is none, or it was erased."""
        if payload is None:
            return None
        text = error_text(self._codec, payload)
        if text is None:
            return ApplicationError("unreadable", "the stored error can't be read")
        return ApplicationError(
            text.code, text.message, self._is_retryable(event), text.fingerprint
        )

    def _is_retryable(self, event: e.Event) -> bool:
        """Whether another attempt could succeed: one follows, or only the number of attempts has ended the retries."""
        if isinstance(event, e.InvokeRetrying):
            return True
        if not isinstance(event, e.InvokeCompleted):
            return False
        allowed, started = self._attempts.pop(event.promise_id, (1, 0))
        return 1 < allowed <= started


def engine_attempt_of(event: e.Event) -> int | None:
    """The physical attempt that an event is about."""
    if isinstance(event, e.InvokeStarted | e.InvokeCompleted):
        return event.attempt
    return event.failed_attempt if isinstance(event, e.InvokeRetrying) else None


def _last_of(origin: RunOrigin) -> str | None:
    """The id of the last event of the run that this one continues."""
    return None if origin.before is None else event_id(origin.before, origin.before_seq - 1)
