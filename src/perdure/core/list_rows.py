"""What lists find a run by, beside the columns that it resumes from; compared with the run's journal.

The tags that a workflow sets while it executes are in no entry: only a replay of its code tells them. So an audit
compares the tags that the run started with, and a load, which replays, compares all.
"""

from collections.abc import Iterator, Mapping

import msgspec

from perdure.core.codec import JsonCodec
from perdure.core.ids import StepId
from perdure.core.journal.events import Event, ExecutionFailed, ExecutionStarted
from perdure.core.replay.identity import parse_parent
from perdure.core.runs.fingerprint import error_text

_CODEC = JsonCodec()


class ListRows(msgspec.Struct, frozen=True):
    """Columns of a run's row, its tags and search keys as names with values, and its parked steps."""

    parent: str | None = None
    forked_from: str | None = None
    error: str | None = None
    slot: str | None = None
    tags: frozenset[tuple[str, str]] = frozenset()
    parked: frozenset[StepId] = frozenset()
    is_in_line: bool = False
    """Whether it waits to be admitted."""


class ListDifference(msgspec.Struct, frozen=True):
    """A finding's name and detail. `is_at_end` if the last entry shows it, not the first."""

    name: str
    detail: str
    is_at_end: bool = False


def list_differences(
    rows: ListRows, first: ExecutionStarted, last: Event
) -> Iterator[ListDifference]:
    """What differs from the first and the last event of the journal."""
    parent = None if first.parent_id is None else parse_parent(first.parent_id)[0]
    forks = None if first.forks is None else first.forks.partition("@")[0]
    for column, held, recorded in (
        ("parent", rows.parent, parent),
        ("forked_from", rows.forked_from, forks),
        ("slot", rows.slot, first.slot),
    ):
        if held != recorded:
            what = f"the column {column} of the run is {held!r}, its first entry says {recorded!r}"
            yield ListDifference(f"{column}_differs", what)
    yield from _error_differs(rows.error, last)
    missing = missing_tags(rows, first)
    if missing:
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(missing.items()))
        what = f"the run started with the tags {named}, and lists do not find it by them"
        yield ListDifference("tags_differ", what)


def _error_differs(held: str | None, last: Event) -> Iterator[ListDifference]:
    """An error that can't be read here may be any: it is erased, encrypted, or large and stored elsewhere.

    Runs that failed before the store kept fingerprints have none.
    """
    if held is None:
        return
    if not isinstance(last, ExecutionFailed):
        what = f"the run has the error {held!r}, its last entry says that it has not failed"
        yield ListDifference("error_differs", what, is_at_end=True)
        return
    text = error_text(_CODEC, last.payload)
    if text is not None and text.fingerprint != held:
        what = f"the error of the run is {held!r}, its last entry says {text.fingerprint!r}"
        yield ListDifference("error_differs", what, is_at_end=True)


def missing_tags(rows: ListRows, first: ExecutionStarted) -> Mapping[str, str]:
    """Tags of the start that have no row. A workflow may have given them other values; a graph can't."""
    names = {name for name, _ in rows.tags}
    return {
        name: value
        for name, value in (first.tags or {}).items()
        if name not in names or (first.trigger is not None and (name, value) not in rows.tags)
    }
