"""Operator acts: what an operator asks of a run, and whether it applies to the run as it is.

The sender decides who may act, before it sends; the owner of the run decides whether the act applies. A decision is a
code, or `None` for an act that is accepted.
"""

from typing import Final, NamedTuple

import msgspec

from perdure.core.ids import Guid, RunId, StepId, message_guid
from perdure.core.journal.events import ActType
from perdure.core.journal.state import Status
from perdure.core.messages import AT_ONCE, Message

MAX_ACT_BYTES: Final = 64 * 1024
"""One act as it is sent, the value of a skipped step or of parameters included."""

ACTS_PER_MINUTE: Final = 60
"""Decisions that one run journals in a minute at most: denied acts are journaled too, and must not flood it."""

WINDOW_MS: Final = 60_000

RETRY_AT_ONCE_MS: Final = 1
"""The due time of the attempt that an operator asks for: past by every clock."""


ACCEPTED: Final = "accepted;"
"""How the verdict begins in the row of an act that was accepted, and that no entry records."""


class Actor(msgspec.Struct, frozen=True):
    """Who acts, as the caller's own authentication knows them, and in which role."""

    name: str
    role: str = ""


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """An act as it is sent. `value` is the encoded result of a skipped step, `None` if the operator gave none, or the
    new values of parameters.

    `refusal` is the code of the authorizer's denial. An act that `descends` is sent to open child runs, too.
    """

    id: str
    type: ActType
    by: str = ""
    role: str = ""
    reason: str = ""
    step: StepId | None = None
    value: bytes | None = None
    descends: bool = False
    refusal: str | None = None


class Decision(msgspec.Struct, frozen=True):
    """What became of an act. `seq` is the entry that records it; `None` if only the message's row does."""

    accepted: bool
    code: str = ""
    reason: str = ""
    seq: int | None = None


class Code:
    """Why an act is rejected."""

    DENIED: Final = "AUTHZ_DENIED"
    REASON_REQUIRED: Final = "AUTHZ_REASON_REQUIRED"
    TERMINAL: Final = "RUN_TERMINAL"
    PARKED: Final = "RUN_PARKED"
    PAUSED: Final = "RUN_PAUSED"
    NOT_PAUSED: Final = "RUN_NOT_PAUSED"
    CANCELLING: Final = "RUN_CANCELLING"
    NOT_PENDING: Final = "RUN_NOT_PENDING"
    STEP_UNKNOWN: Final = "STEP_UNKNOWN"
    STEP_SETTLED: Final = "STEP_SETTLED"
    STEP_NOT_TERMINAL: Final = "STEP_NOT_TERMINAL"
    VALUE_MISFIT: Final = "VALUE_MISFIT"
    NO_PARAMETERS: Final = "PARAMS_NOT_DECLARED"
    PARAMETER_UNKNOWN: Final = "PARAM_UNKNOWN"
    PARAMETER_MISFIT: Final = "PARAM_MISFIT"
    UNSUPPORTED: Final = "ACT_UNSUPPORTED"
    RATE_LIMITED: Final = "RATE_LIMITED"
    ID_TAKEN: Final = "ID_TAKEN"


EXPLANATIONS: Final = {
    Code.DENIED: "the actor may not do this",
    Code.REASON_REQUIRED: "this act needs a reason",
    Code.TERMINAL: "the run has ended",
    Code.PARKED: "the run is parked: its code can't continue it; only CANCEL and EMERGENCY_STOP apply",
    Code.PAUSED: "the run is paused already",
    Code.NOT_PAUSED: "the run is not paused",
    Code.CANCELLING: "the run is being cancelled",
    Code.NOT_PENDING: "the run has begun and needs no approval",
    Code.STEP_UNKNOWN: "the run has no such step",
    Code.STEP_SETTLED: "the step has its outcome",
    Code.STEP_NOT_TERMINAL: "the step has not failed: it is under way, or waits for its next attempt",
    Code.VALUE_MISFIT: "the value is not of the step's result type",
    Code.NO_PARAMETERS: "the program declares no parameters",
    Code.PARAMETER_UNKNOWN: "the program declares no parameter of that name",
    Code.PARAMETER_MISFIT: "the parameters would not be of the types that the program declares",
    Code.UNSUPPORTED: "this act does not apply to an open run",
    Code.RATE_LIMITED: "more acts in a minute than the settings allow",
    Code.ID_TAKEN: "another act has this id",
}


class StepStanding(NamedTuple):
    """A step as the journal shows it."""

    is_known: bool
    is_settled: bool = False
    is_parked: bool = False


def verdict(
    act: Act, status: Status, *, is_cancelled: bool, step: StepStanding | None
) -> str | None:
    """The code why the act does not apply to an open run in this status; `None` if it does.

    `is_cancelled`: the run was asked to stop. `step` is that of the act, if it names one.
    """
    if act.refusal is not None or act.type is ActType.EMERGENCY_STOP:
        return act.refusal
    if is_cancelled:
        return Code.CANCELLING
    if act.type in (ActType.RETRY_STEP, ActType.SKIP_STEP):
        return _step_verdict(step)
    is_paused = status is Status.PAUSED
    return {
        ActType.CANCEL: None,
        ActType.FORK: None,
        ActType.RETRY_RUN: None,
        ActType.PAUSE: Code.PAUSED if is_paused else None,
        ActType.RESUME: None if is_paused else Code.NOT_PAUSED,
        ActType.APPROVE: Code.NOT_PENDING,
        ActType.UPDATE_PARAMS: None,
    }.get(act.type, Code.UNSUPPORTED)


def _step_verdict(step: StepStanding | None) -> str | None:
    if step is None or not step.is_known:
        return Code.STEP_UNKNOWN
    if step.is_settled:
        return Code.STEP_SETTLED
    return None if step.is_parked else Code.STEP_NOT_TERMINAL


def is_over_limit(times: list[int], now_ms: int, most: int = ACTS_PER_MINUTE) -> bool:
    """Whether decisions at these times leave no room for another one now. Forgets times before the window."""
    times[:] = [at_ms for at_ms in times if at_ms > now_ms - WINDOW_MS]
    return len(times) >= most


def closed_verdict(act: Act | None, what: str) -> str:
    """What the row of an act says that a closed run can't record. A fork began in the commit that sent its act."""
    if act is not None and act.refusal is not None:
        return f"{act.refusal}: {what}"
    if act is not None and act.type in (ActType.FORK, ActType.RETRY_RUN):
        return f"{ACCEPTED} {what}"
    return f"{Code.TERMINAL}: {what}"


def act_guid(origin: RunId, signal_id: str) -> Guid:
    """The message of an act: one for a run or the chain that began with it, whichever process sends it."""
    return message_guid(origin, "act", signal_id)


def denied_guid(origin: RunId, act: Act) -> Guid:
    """The message of a denied act. It takes no id from others: who may not act can't keep those out who may."""
    return message_guid(origin, "denied", act.id, act.type, act.by, act.role, act.refusal or "")


def is_act(kind: str) -> bool:
    """Whether messages of this kind carry an act."""
    return kind.startswith("act:")


def act_message(run_id: RunId, act: Act, arrival: int) -> Message:
    """The message that carries the act to a run."""
    guid = act_guid(run_id, act.id) if act.refusal is None else denied_guid(run_id, act)
    payload = msgspec.json.encode(act)
    return Message(run_id, guid, f"act:{act.type}", AT_ONCE, arrival, payload=payload)


def act_of(message: Message) -> Act | None:
    """The act that a message carries; `None` if it can't be read: its row is damaged, or a newer Perdure wrote it."""
    try:
        return msgspec.json.decode(message.payload or b"", type=Act)
    except msgspec.DecodeError:
        return None
