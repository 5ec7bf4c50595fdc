"""The rows of a group besides its books, with values in the order of the statements' parameters."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from operator import itemgetter
from typing import Any

from msgspec.structs import astuple

from perdure.core.ids import RunId
from perdure.core.messages import AT_ONCE
from perdure.store.commit.group import Group
from perdure.store.rows.records import TaskHolder
from perdure.store.rows.values import RowValues


def created_rows(group: Group) -> list[RowValues]:
    """In the order of keys, so that hosts that start runs with the same keys lock them in one order."""
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
            *head.after(),
            run.created_at_ms,
            head.closed_at_ms,
            run.chain,
            run.parent,
            run.forked_from,
            run.slot,
        )
        for run, head in sorted(group.created, key=lambda created: created[0].key or "")
    ]


def handed_rows(group: Group) -> list[RowValues]:
    """Runs that hand over their keys, and the new runs that get them, in the order of keys as in `created_rows`."""
    created = [run for run, _ in group.created if run.replaces is not None]
    return [(run.replaces, run.run_id) for run in sorted(created, key=lambda run: run.key or "")]


def message_rows(group: Group) -> list[RowValues]:
    """Each with its position among the group's messages that are due at once and have the same first recipient.

    One statement does not see the rows it inserts itself: the position keeps them in the order of sending.
    """
    rows: list[RowValues] = []
    positions: Counter[str] = Counter()
    for m in group.messages:
        origin = m.guid.rpartition("_")[0]
        positions[origin] += m.due_at_ms == AT_ONCE
        about = m.run_id, m.guid, m.kind, m.step, m.payload
        rows.append((*about, m.due_at_ms, m.arrival, positions[origin]))
    return rows


def forwarded_rows(group: Group) -> list[RowValues]:
    """In the order of keys, so that hosts that forward the same messages lock them in one order."""
    return [(*message, *to) for message, to in sorted(group.forwarded.items())]


def work_rows(group: Group) -> list[RowValues]:
    return [
        (w.run_id, w.step, w.guid, w.queue, w.priority, w.payload, w.available_at_ms)
        for w in group.work.values()
    ]


def parked_step_rows(group: Group) -> list[RowValues]:
    return [(*step, *row) for step, row in sorted(group.parked_steps.items()) if row is not None]


def unparked_step_rows(group: Group) -> list[RowValues]:
    return [step for step, row in sorted(group.parked_steps.items()) if row is None]


def published_again_rows(group: Group) -> list[RowValues]:
    return _rows_with_holder(sorted(group.published_again.items(), key=itemgetter(0)))


def publishing(group: Group) -> tuple[str, list[RowValues]]:
    """The statement for published values, and its rows.

    In the order of keys, so that hosts that publish the same names lock them in one order.
    """
    published = sorted(group.published.items(), key=itemgetter(0))
    if all(by is None for _, (_, _, by) in published):
        return "publish", [(*key, payload, at_ms) for key, (payload, at_ms, _) in published]
    return "publish_by", _rows_with_holder(published)


def _rows_with_holder(
    published: list[tuple[tuple[RunId, str], tuple[bytes, int, TaskHolder | None]]],
) -> list[RowValues]:
    return [
        (*key, payload, at_ms, *((None, None) if by is None else astuple(by)))
        for key, (payload, at_ms, by) in published
    ]


def stream_rows(group: Group) -> list[RowValues]:
    """By how much each stream grows, and whether the group itself shows that its run is open.

    In the order of keys, so that hosts that append to the same streams lock them in one order.
    """
    growth = Counter((chunk.run_id, chunk.name) for chunk in group.chunks.values())
    own = group.appended
    return [(*stream, count, stream[0] in own) for stream, count in sorted(growth.items())]


def chunk_rows(group: Group, streams: Iterable[Sequence[Any]]) -> list[RowValues]:
    """Each chunk with its position, given the streams' new lengths."""
    growth = {row[:2]: row[2] for row in stream_rows(group)}
    ends = {(run_id, name): length for run_id, name, length in streams}
    positions = {stream: count(ends[stream] - grown) for stream, grown in growth.items()}
    return [
        (
            c.run_id,
            c.name,
            next(positions[c.run_id, c.name]),
            *c.origin,
            c.number,
            c.payload,
            c.at_ms,
        )
        for c in group.chunks.values()
    ]
