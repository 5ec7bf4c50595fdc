"""Rows of lists: a run as lists show it, and a page of them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.ids import HostId, RunId
from perdure.core.journal.state import Status
from perdure.core.runs.listing import Position


class ListedRun(msgspec.Struct, frozen=True):
    """A run as lists show it. `entries` counts its journal's entries; `error` is the fingerprint of its error."""

    run_id: RunId
    scope: str
    program: str
    version: str
    key: str | None
    status: Status
    parked: str | None
    owner: HostId | None
    parent: RunId | None
    forked_from: RunId | None
    chain: RunId | None
    error: str | None
    entries: int
    created_at_ms: int
    closed_at_ms: int | None
    tags: dict[str, str] = {}


class ListedPage(msgspec.Struct, frozen=True):
    """A page of a list, and where the next one continues; `None` if there is none."""

    runs: list[ListedRun]
    after: Position | None


class RunCount(msgspec.Struct, frozen=True):
    """How many runs were found; more may follow if the count is not complete."""

    runs: int
    is_complete: bool


def listed_from(row: Sequence[Any], tags: dict[str, str]) -> ListedRun:
    run_id, scope, program, version, key, status, *rest = row
    values: list[Any] = [run_id, scope, program, version, key, Status(status), *rest]
    return msgspec.structs.replace(ListedRun(*values), tags=tags)


def tags_by_run(rows: Sequence[Sequence[Any]]) -> dict[str, dict[str, str]]:
    """Tags from rows of run, name and value."""
    found: dict[str, dict[str, str]] = {}
    for run_id, name, value in rows:
        found.setdefault(run_id, {})[name] = value
    return found
