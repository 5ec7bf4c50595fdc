"""Alerts: conditions that an operator must look at."""

from enum import StrEnum
from typing import Any

import msgspec

from perdure.core.ids import RunId


class AlertCode(StrEnum):
    """What the alert is about."""

    PROJECTOR_LAG_HIGH = "PROJECTOR_LAG_HIGH"
    PROJECTOR_GAP_DETECTED = "PROJECTOR_GAP_DETECTED"
    BUS_UNAVAILABLE = "BUS_UNAVAILABLE"
    EVENT_DEAD_LETTERED = "EVENT_DEAD_LETTERED"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that an operator must look at. `severity` is `P1`, the most urgent, to `P4`."""

    code: AlertCode
    severity: str
    message: str
    at_ms: int
    run_id: RunId | None = None
    details: dict[str, Any] = {}


def lag_alert(run_id: RunId, lag_ms: int, at_ms: int) -> Alert:
    """A follower reads a run's entries late."""
    return Alert(
        code=AlertCode.PROJECTOR_LAG_HIGH,
        severity="P2",
        message=f"the view of run {run_id} is {lag_ms / 1000:.1f} s behind its journal",
        at_ms=at_ms,
        run_id=run_id,
        details={"lag_ms": lag_ms},
    )


def gap_alert(run_id: RunId, expected: int, found: int, at_ms: int) -> Alert:
    """An entry of a run is missing."""
    return Alert(
        code=AlertCode.PROJECTOR_GAP_DETECTED,
        severity="P1",
        message=f"entry {expected} of run {run_id} is missing: entry {found} comes next",
        at_ms=at_ms,
        run_id=run_id,
        details={"expected": expected, "found": found},
    )


def bus_alert(bus: str, reason: str, at_ms: int) -> Alert:
    """A bus takes no events."""
    return Alert(
        code=AlertCode.BUS_UNAVAILABLE,
        severity="P2",
        message=f"event bus {bus!r} takes no events, which wait for it: {reason}",
        at_ms=at_ms,
        details={"bus": bus, "reason": reason},
    )


def dead_letter_alert(bus: str, run_id: RunId, seq: int, reason: str, at_ms: int) -> Alert:
    """A bus refused an event for good."""
    return Alert(
        code=AlertCode.EVENT_DEAD_LETTERED,
        severity="P2",
        message=f"event bus {bus!r} refused event {seq} of run {run_id}, now a dead letter: {reason}",
        at_ms=at_ms,
        run_id=run_id,
        details={"bus": bus, "seq": seq, "reason": reason},
    )
