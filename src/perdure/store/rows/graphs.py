"""Rows of the graph tables, decoded into values."""

from collections.abc import Sequence
from typing import Any

from perdure.core.ids import RunId, StepId
from perdure.core.journal.state import Status
from perdure.store.rows.records import (
    DeployedProgram,
    HookRow,
    InboxRow,
    ReadinessRow,
    StoredProgram,
)


def readiness_from(row: Sequence[Any]) -> ReadinessRow:
    return ReadinessRow(*row)


def delivery_from(row: Sequence[Any]) -> InboxRow:
    return InboxRow(*row)


def hook_from(row: Sequence[Any]) -> HookRow:
    run_id, step, kind, mailbox, *rest = row
    return HookRow(RunId(run_id), StepId(step), kind, RunId(mailbox), *rest)


def count_from(row: Sequence[Any]) -> tuple[str, Status, int]:
    value, status, count = row
    return value, Status(status), count


def stored_program_from(row: Sequence[Any]) -> StoredProgram:
    name, version, digest, content, deployed_at_ms, is_active, activations, open_runs = row
    about = name, version, digest, content, deployed_at_ms
    return StoredProgram(*about, bool(is_active), activations, open_runs)


def deployed_from(row: Sequence[Any]) -> DeployedProgram:
    name, version, digest, content, is_active, activations = row
    return DeployedProgram(name, version, digest, content, bool(is_active), activations)
