"""A group's values in the order in which the statements take them, and rows as values again."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from perdure.core.books import Ending
from perdure.core.ids import Guid, RunId, StepId
from perdure.core.journal.entry import Entry
from perdure.core.journal.state import Status
from perdure.core.messages import Message, Work
from perdure.core.streams.chunks import Origin, StoredChunk
from perdure.store.group import Group, Head
from perdure.store.records import Claim, Run

Row = tuple[Any, ...]


def created_rows(group: Group) -> list[Row]:
    """In the order of keys, so that hosts that start the same keys at once wait in one line."""
    return [
        (
            run.run_id,
            run.scope,
            run.program,
            run.version,
            run.digest,
            run.key,
            run.owner if head.closed_at_ms is None else None,
            head.epoch,
            *_after(head),
            run.created_at_ms,
            head.closed_at_ms,
            run.chain,
        )
        for run, head in sorted(group.created, key=lambda created: created[0].key or "")
    ]


def head_rows(group: Group) -> list[Row]:
    return [
        (
            head.run_id,
            head.epoch,
            head.head_before,
            head.semaphore_before,
            *_after(head),
        )
        for head in group.heads.values()
    ]


def closed_rows(group: Group) -> list[Row]:
    closed = ((run_id, head.closed_at_ms) for run_id, head in group.heads.items())
    return [row for row in closed if row[1] is not None]


def _after(head: Head) -> Row:
    last = head.last
    if last is None:
        return None, None, None, None
    return last.seq_after, last.head, last.semaphore_after, last.status.value


def event_rows(group: Group) -> list[Row]:
    return [
        (appended.run_id, *astuple(entry))
        for appended in group.appends
        for entry in appended.entries
    ]


def posting_rows(group: Group) -> list[Row]:
    return [(run_id, account, total) for (run_id, account), total in group.postings.items()]


def message_rows(group: Group) -> list[Row]:
    return [
        (m.run_id, m.guid, m.kind, m.step, m.payload, m.due_at_ms, m.arrival)
        for m in group.messages
    ]


def forwarded_rows(group: Group) -> list[Row]:
    """In the order of keys, so that hosts that forward the same messages at once wait in one line."""
    return [(*message, *to) for message, to in sorted(group.forwarded.items())]


def work_rows(group: Group) -> list[Row]:
    return [
        (w.run_id, w.step, w.guid, w.queue, w.priority, w.payload, w.available_at_ms)
        for w in group.work.values()
    ]


def publishing(group: Group) -> tuple[str, list[Row]]:
    """The statement for what is published, and its rows.

    In the order of keys, so that hosts that publish the same names at once wait in one line.
    """
    published = sorted(group.published.items(), key=itemgetter(0))
    if all(by is None for _, (_, _, by) in published):
        return "publish", [(*key, payload, at_ms) for key, (payload, at_ms, _) in published]
    return "publish_by", [
        (*key, payload, at_ms, *((None, None) if by is None else astuple(by)))
        for key, (payload, at_ms, by) in published
    ]


def stream_rows(group: Group) -> list[Row]:
    """By how much each stream grows, and whether its run is known not to be over. In the order of keys, so that hosts
    that append to the same wait in one line."""
    growth = Counter((chunk.run_id, chunk.name) for chunk in group.chunks.values())
    own = group.appended
    return [(*stream, count, stream[0] in own) for stream, count in sorted(growth.items())]


def chunk_rows(group: Group, streams: Iterable[Sequence[Any]]) -> list[Row]:
    """Each chunk at its position, given the streams as they are now that they have grown."""
    growth = {row[:2]: row[2] for row in stream_rows(group)}
    ends = {(run_id, name): length for run_id, name, length in streams}
    places = {stream: count(ends[stream] - grown) for stream, grown in growth.items()}
    return [
        (c.run_id, c.name, next(places[c.run_id, c.name]), *c.origin, c.number, c.payload, c.at_ms)
        for c in group.chunks.values()
    ]


def chunk_from(row: Sequence[Any]) -> StoredChunk:
    position, step, attempt, claim, payload, at_ms = row
    return StoredChunk(position, Origin(StepId(step), attempt, claim), payload, at_ms)


def span_from(row: Sequence[Any]) -> tuple[Origin, range]:
    step, attempt, claim, first, last = row
    return Origin(StepId(step), attempt, claim), range(first, last + 1)


def run_from(row: Iterable[Any]) -> Run:
    run = Run(*row)
    return msgspec.structs.replace(run, status=Status(run.status))


def ending_from(row: Sequence[Any]) -> Ending:
    """What a run's row says of its books, whether or not the rest of it makes sense."""
    return Ending(row[8], row[9], row[10], row[11])


def entry_from(row: Iterable[Any]) -> Entry:
    return Entry(*row)


def loaded_from(
    runs: Iterable[Sequence[Any]], entries: Iterable[Sequence[Any]]
) -> list[tuple[Run, list[Entry]]]:
    """Each run with its journal, from run rows and from entries headed by the id of their run."""
    journals: dict[str, list[Entry]] = {row[0]: [] for row in runs}
    for run_id, *entry in entries:
        journals[run_id].append(entry_from(entry))
    return [(run_from(row), journals[row[0]]) for row in runs]


def message_from(row: Iterable[Any]) -> Message:
    run_id, guid, kind, due_at_ms, arrival, step, payload = row
    return Message(
        RunId(run_id),
        Guid(guid),
        kind,
        due_at_ms,
        arrival,
        None if step is None else StepId(step),
        payload,
    )


def claim_from(row: Iterable[Any]) -> Claim:
    run_id, step, guid, queue, available_at_ms, priority, payload, token, claims = row
    work = Work(RunId(run_id), StepId(step), Guid(guid), queue, available_at_ms, priority, payload)
    return Claim(work, token, claims)
