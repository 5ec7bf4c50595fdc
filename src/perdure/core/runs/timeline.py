"""The timeline of a run: bars split by kind of time, with many steps of one name folded into one. Pure."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from perdure.core.ids import StepId
from perdure.core.runs.snapshot import StepStatus
from perdure.core.runs.step_records import StepRecord, TimeKind

MOST_SEGMENTS: Final = 40
"""Segments of the bar of one step; a step with more of them is binned, as folded steps are."""

SHORTEST_IDLE: Final = 0.05
"""The shortest idle time that is named, as a part of the whole span."""

_BUSY: Final = frozenset({TimeKind.QUEUED, TimeKind.EXECUTING, TimeKind.IN_DOUBT})


class Segment(msgspec.Struct, frozen=True):
    """A part of a bar. In a bar of several steps, `steps` is the mean number of them that do this then."""

    kind: TimeKind
    from_ms: int
    to_ms: int
    steps: float


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bar: one step, or all steps of one name and kind; then `step` is `None`."""

    name: str
    kind: str
    steps: int
    step: StepId | None
    failed: int
    open: int
    begun_at_ms: int
    ended_at_ms: int | None
    segments: list[Segment]


class Idle(msgspec.Struct, frozen=True):
    """A time in which no step was queued or executing."""

    from_ms: int
    to_ms: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Bars in the order in which their first steps began."""

    from_ms: int
    to_ms: int
    now_ms: int
    is_open: bool
    rows: list[TimelineRow]
    idle: list[Idle]
    total_steps: int


class Window(msgspec.Struct, frozen=True):
    """What is shown: a span of time in `bins` parts, and at most `rows` bars of single steps."""

    from_ms: int
    to_ms: int
    bins: int
    rows: int

    @property
    def bin_ms(self) -> float:
        return max(1.0, (self.to_ms - self.from_ms) / self.bins)


def timeline_of(
    records: Sequence[StepRecord], window: Window, now_ms: int, *, is_open: bool
) -> Timeline:
    """The timeline. An open step lasts until now, or until the run ended."""
    end_ms = now_ms if is_open else window.to_ms
    shown = [each for each in records if _is_in(each, window, end_ms)]
    if len(shown) <= window.rows:
        rows = [_row([each], window, end_ms) for each in shown]
    else:
        rows = [_row(group, window, end_ms) for group in _folded(shown)]
    return Timeline(
        from_ms=window.from_ms,
        to_ms=window.to_ms,
        now_ms=now_ms,
        is_open=is_open,
        rows=rows,
        idle=_idle(shown, window, end_ms),
        total_steps=len(records),
    )


def _is_in(record: StepRecord, window: Window, end_ms: int) -> bool:
    ended_ms = end_ms if record.completed_at_ms is None else record.completed_at_ms
    return record.scheduled_at_ms <= window.to_ms and ended_ms >= window.from_ms


def _folded(records: Sequence[StepRecord]) -> list[list[StepRecord]]:
    """The steps by name and kind, in the order of their first ones."""
    groups: dict[tuple[str, str], list[StepRecord]] = {}
    for each in records:
        groups.setdefault((each.name, each.kind), []).append(each)
    return list(groups.values())


def _row(group: Sequence[StepRecord], window: Window, end_ms: int) -> TimelineRow:
    first = group[0]
    ends = [each.completed_at_ms for each in group]
    is_single = len(group) == 1
    segments = _exact(first, window, end_ms) if is_single else []
    if not is_single or len(segments) > MOST_SEGMENTS:
        segments = _binned(group, window, end_ms)
    return TimelineRow(
        name=first.name,
        kind=first.kind,
        steps=len(group),
        step=first.step if is_single else None,
        failed=sum(each.status is StepStatus.FAILED for each in group),
        open=sum(each.is_open for each in group),
        begun_at_ms=min(each.scheduled_at_ms for each in group),
        ended_at_ms=None if None in ends else max(end for end in ends if end is not None),
        segments=segments,
    )


def _exact(record: StepRecord, window: Window, end_ms: int) -> list[Segment]:
    return [
        Segment(kind, max(from_ms, window.from_ms), min(to_ms, window.to_ms), 1)
        for kind, from_ms, to_ms in record.spans(end_ms)
        if to_ms >= window.from_ms and from_ms <= window.to_ms
    ]


def _binned(group: Sequence[StepRecord], window: Window, end_ms: int) -> list[Segment]:
    """What the steps do in each bin; neighbouring bins with equal numbers are one segment."""
    sums: dict[TimeKind, list[float]] = {}
    for record in group:
        for kind, from_ms, to_ms in record.spans(end_ms):
            _spread(sums.setdefault(kind, [0.0] * window.bins), from_ms, to_ms, window)
    segments = []
    for kind in TimeKind:
        means = [round(each / window.bin_ms, 2) for each in sums.get(kind, ())]
        at = 0
        for mean, same in groupby(means):
            count = len(list(same))
            if mean:
                from_ms = window.from_ms + round(at * window.bin_ms)
                to_ms = window.from_ms + round((at + count) * window.bin_ms)
                segments.append(Segment(kind, from_ms, to_ms, mean))
            at += count
    return segments


def _spread(sums: list[float], from_ms: int, to_ms: int, window: Window) -> None:
    """Add a span to the bins that it touches."""
    first = max(0.0, (from_ms - window.from_ms) / window.bin_ms)
    last = min(float(window.bins), (to_ms - window.from_ms) / window.bin_ms)
    at = int(first)
    while at < last:
        sums[at] += (min(last, at + 1) - max(first, at)) * window.bin_ms
        at += 1


def _idle(records: Sequence[StepRecord], window: Window, end_ms: int) -> list[Idle]:
    """The times between busy spans, those that are long enough to name."""
    busy = sorted(
        (from_ms, to_ms)
        for record in records
        for kind, from_ms, to_ms in record.spans(end_ms)
        if kind in _BUSY
    )
    shortest_ms = (window.to_ms - window.from_ms) * SHORTEST_IDLE
    found, at_ms = [], window.from_ms
    for from_ms, to_ms in (*busy, (window.to_ms, window.to_ms)):
        if from_ms - at_ms > shortest_ms:
            found.append(Idle(at_ms, from_ms))
        at_ms = max(at_ms, to_ms)
    return found
