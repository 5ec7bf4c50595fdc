"""Which acts apply to a run as it is, who may act, and how many in a minute: pure decisions."""

import pytest

from perdure.core.ids import RunId, StepId
from perdure.core.journal.events import ActType
from perdure.core.journal.state import Status
from perdure.core.runs.acts import (
    ACTS_PER_MINUTE,
    EXPLANATIONS,
    WINDOW_MS,
    Act,
    Actor,
    Code,
    StepStanding,
    act_message,
    act_of,
    is_over_limit,
    verdict,
)
from perdure.core.runs.authority import ROLES, ActedRun, AllowAll, Roles

RUN = RunId("r_018bcfe568007e64b59bfbcf3c5743cc")
TARGET = ActedRun(RUN, "checkout", "1", "", None, "blocked")
OPEN, SETTLED, PARKED = (
    StepStanding(True),
    StepStanding(True, True),
    StepStanding(True, False, True),
)


def _verdict(
    kind: ActType,
    status: Status = Status.RUNNING,
    *,
    is_cancelled: bool = False,
    step: StepStanding | None = None,
) -> str | None:
    return verdict(Act("1", kind), status, is_cancelled=is_cancelled, step=step)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (ActType.PAUSE, Status.RUNNING, None),
        (ActType.PAUSE, Status.PAUSED, Code.PAUSED),
        (ActType.RESUME, Status.PAUSED, None),
        (ActType.RESUME, Status.RUNNING, Code.NOT_PAUSED),
        (ActType.CANCEL, Status.PAUSED, None),
        (ActType.EMERGENCY_STOP, Status.PAUSED, None),
        (ActType.APPROVE, Status.RUNNING, Code.NOT_PENDING),
        (ActType.UPDATE_PARAMS, Status.RUNNING, None),
        (ActType.UPDATE_PARAMS, Status.PAUSED, None),
        (ActType.FORK, Status.RUNNING, None),
    ],
)
def test_act_applies_in_some_states(kind: ActType, status: Status, code: str | None) -> None:
    assert _verdict(kind, status) == code


@pytest.mark.parametrize("kind", [each for each in ActType if each != ActType.EMERGENCY_STOP])
def test_cancelling_run_takes_only_an_emergency_stop(kind: ActType) -> None:
    assert _verdict(kind, is_cancelled=True, step=PARKED) == Code.CANCELLING
    assert _verdict(ActType.EMERGENCY_STOP, is_cancelled=True) is None


@pytest.mark.parametrize("kind", [ActType.RETRY_STEP, ActType.SKIP_STEP])
@pytest.mark.parametrize(
    ("step", "code"),
    [
        (None, Code.STEP_UNKNOWN),
        (StepStanding(False), Code.STEP_UNKNOWN),
        (SETTLED, Code.STEP_SETTLED),
        (OPEN, Code.STEP_NOT_TERMINAL),
        (PARKED, None),
    ],
)
def test_only_parked_steps_are_retried_and_skipped(
    kind: ActType, step: StepStanding | None, code: str | None
) -> None:
    assert _verdict(kind, step=step) == code


@pytest.mark.parametrize("kind", list(ActType))
def test_denied_act_never_applies(kind: ActType) -> None:
    act = Act("1", kind, refusal=Code.DENIED)
    assert verdict(act, Status.RUNNING, is_cancelled=False, step=PARKED) == Code.DENIED


def test_every_code_is_explained() -> None:
    codes = {value for name, value in vars(Code).items() if name.isupper()}
    assert codes == EXPLANATIONS.keys()


def test_limit_counts_the_decisions_of_the_last_minute() -> None:
    times = [0] * 10 + [1_000] * (ACTS_PER_MINUTE - 1)
    assert not is_over_limit(times, WINDOW_MS)
    times.append(WINDOW_MS)
    assert is_over_limit(times, WINDOW_MS)
    assert not is_over_limit(times, 1_000 + WINDOW_MS)


def test_act_survives_its_message() -> None:
    act = Act("1", ActType.SKIP_STEP, "ada", "engineer", "why", StepId("root.0"), b"\x00\xff", True)
    assert act_of(act_message(RUN, act, 0)) == act


@pytest.mark.parametrize("role", [*ROLES, "", "intern"])
@pytest.mark.parametrize("kind", list(ActType))
async def test_roles_allow_what_they_list(role: str, kind: ActType) -> None:
    actor = Actor("ada", role)
    decided = await Roles().decide(Act("1", kind), actor, TARGET, "because")
    assert (decided is None) == (kind in ROLES.get(role, ()))
    assert await AllowAll().decide(Act("1", kind), actor, TARGET, "") is None


@pytest.mark.parametrize("kind", [ActType.UPDATE_PARAMS, ActType.EMERGENCY_STOP])
async def test_acts_of_admins_need_a_reason(kind: ActType) -> None:
    root = Actor("root", "admin")
    assert await Roles().decide(Act("1", kind), root, TARGET, " ") == Code.REASON_REQUIRED
    assert await Roles().decide(Act("1", ActType.PAUSE), root, TARGET, "") is None
