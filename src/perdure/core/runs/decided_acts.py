"""The acts on a run that are decided: those in its journal, and those that it took in without an entry."""

import msgspec

from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry
from perdure.core.journal.events import ActType
from perdure.core.messages import Message
from perdure.core.runs.acts import ACCEPTED, act_of
from perdure.core.runs.forking import fork_id

_FORKS = (ActType.FORK, ActType.RETRY_RUN)


class DecidedAct(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's act on a run, and what became of it.

    `seq` is the entry that records it. It is `None` for an act that no entry records, because the run had ended or the
    act was one of too many: then `at_ms` is when the act was sent. `fork` is the run that an accepted fork has made.
    """

    run_id: RunId
    type: str
    signal_id: str
    by: str = ""
    role: str = ""
    reason: str = ""
    step: StepId | None = None
    is_accepted: bool
    code: str = ""
    at_ms: int
    seq: int | None = None
    fork: RunId | None = None


def decided_in(entry: Entry, run_id: RunId, origin: RunId) -> DecidedAct:
    """The act that an entry with a decision records. `origin` is the first run of the chain."""
    event = entry.event
    assert isinstance(event, e.SignalAccepted | e.SignalRejected)  # noqa: S101 - the store gives no other
    is_accepted = isinstance(event, e.SignalAccepted)
    return DecidedAct(
        run_id=run_id,
        type=event.signal_type,
        signal_id=event.signal_id,
        by=event.by,
        role=event.role,
        reason=event.reason,
        step=event.step,
        is_accepted=is_accepted,
        code="" if isinstance(event, e.SignalAccepted) else event.code,
        at_ms=entry.at_ms,
        seq=entry.seq,
        fork=_fork(origin, event.signal_type, event.signal_id) if is_accepted else None,
    )


def set_aside(message: Message, verdict: str, origin: RunId) -> DecidedAct | None:
    """The act of a message that was taken in without an entry; `None` if its row is damaged or says no decision."""
    act = act_of(message)
    is_accepted = verdict.startswith(ACCEPTED)
    code, colon, _ = verdict.partition(": ")
    if act is None or not (is_accepted or colon):
        return None
    return DecidedAct(
        run_id=message.run_id,
        type=act.type.value,
        signal_id=act.id,
        by=act.by,
        role=act.role,
        reason=act.reason,
        step=act.step,
        is_accepted=is_accepted,
        code="" if is_accepted else code,
        at_ms=message.arrival,
        fork=_fork(origin, act.type, act.id) if is_accepted else None,
    )


def _fork(origin: RunId, kind: str, signal_id: str) -> RunId | None:
    return fork_id(origin, signal_id) if kind in _FORKS else None
