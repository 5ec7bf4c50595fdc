"""Rows of lists: a run as lists show it, and a page of them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.core.ids import HostId, RunId, StepId
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


class ErrorGroupRow(msgspec.Struct, frozen=True):
    """An error by its fingerprint: the runs that failed with it, the parked steps that have it, when it was last met,
    and the newest run that has it."""

    error: str
    runs: int
    parked_steps: int
    last_ms: int
    run_id: RunId


class ErrorGroupRows(msgspec.Struct, frozen=True):
    """Errors, the most frequent first. `is_complete` is False if older runs were not looked at, or groups left out."""

    groups: list[ErrorGroupRow]
    is_complete: bool


class PersonalWait(msgspec.Struct, frozen=True):
    """What a run waits for that a person can give: `kind` is `signal`, or `operator` for a parked step.

    `name` is that of the signal or the task, `key` that of a graph's hook, `error` the fingerprint of the step's error.
    """

    run_id: RunId
    step: StepId
    kind: str
    name: str
    key: str | None
    since_ms: int
    error: str | None


class RunCount(msgspec.Struct, frozen=True):
    """How many runs there are. `is_complete` is False if the store stopped counting: there may be more."""

    runs: int
    is_complete: bool

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.runs} runs" if self.is_complete else f"{self.runs} runs or more"


class SqlRows(msgspec.Struct, frozen=True):
    """What a query found: names of columns, and rows. `is_complete` is False if there are more rows than asked for."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    is_complete: bool = True

    def __repr__(self) -> str:
        more = "" if self.is_complete else " or more"
        return f"<{len(self.rows)} rows{more} of {', '.join(self.columns)}>"


def listed_from(row: Sequence[Any], tags: dict[str, str]) -> ListedRun:
    """A run from its row. A status that does not exist is damage: the run is shown as parked, the others as ever."""
    run = msgspec.structs.replace(ListedRun(*row), tags=tags)
    try:
        return msgspec.structs.replace(run, status=Status(run.status))
    except ValueError:
        why = f"damaged: its status is {run.status!r}"
        return msgspec.structs.replace(run, status=Status.PENDING, parked=why)


def tags_by_run(rows: Sequence[Sequence[Any]]) -> dict[str, dict[str, str]]:
    """Tags from rows of run, name and value."""
    found: dict[str, dict[str, str]] = {}
    for run_id, name, value in rows:
        found.setdefault(run_id, {})[name] = value
    return found
