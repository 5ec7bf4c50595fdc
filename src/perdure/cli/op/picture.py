"""How operations look: one as a tree of its participants and their calls, many as a table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from perdure.operations import FrameState, LedgerData, OperationState, StackFrame

_COLOURS = {
    OperationState.RUNNING: "cyan",
    OperationState.CLEANUP: "yellow",
    OperationState.FAILED: "red",
    OperationState.COMPLETED: "green",
    FrameState.ACTIVE: "cyan",
    FrameState.CRASHED: "red",
    FrameState.CLEANING_UP: "yellow",
    FrameState.CLEANED_UP: "green",
}


class Row(NamedTuple):
    """An operation in a list. Without data its ledger can't be read, and `trouble` says why."""

    operation_id: str
    data: LedgerData | None
    is_backup: bool = False
    trouble: str = ""


class View(NamedTuple):
    """When the ledger is looked at, and the age from which a heartbeat is stale."""

    at: datetime
    staleness_s: float

    def age_s(self, when: datetime) -> float:
        """By the clocks of who wrote it and who looks, which may differ."""
        return max(0.0, (self.at - when).total_seconds())

    def is_stale(self, when: datetime) -> bool:
        return self.age_s(when) > self.staleness_s


def tree_of(data: LedgerData, view: View, *, is_backup: bool = False) -> Tree:
    """The operation, below it who takes part, and below them their calls."""
    tree = Tree(_head(data, view, is_backup=is_backup), guide_style="dim")
    for frames in _by_owner(data.stack):
        branch = tree.add(_participant(data, frames, view))
        for frame in frames:
            leaf = branch.add(_call(frame, view))
            for path in frame.resources:
                leaf.add(Text(f"temporary: {printable(path)}", style="dim"))
    if not data.stack and not data.is_over:
        tree.add(Text("no calls under way", style="dim"))
    for path in data.temp_resources:
        if not data.is_over:
            tree.add(Text(f"temporary: {printable(path)}", style="dim"))
    return tree


def table_of(rows: Sequence[Row], view: View) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("OPERATION", "STATE", "STARTED", "CALLS", "HEARTBEAT"):
        table.add_column(name, justify="right" if name == "CALLS" else "left", no_wrap=True)
    table.add_column("ABOUT")  # It alone gives way in a narrow terminal, where its end is cut.
    for row in rows:
        data = row.data
        if data is None:
            told = Text("unreadable", style="red")
            table.add_row(printable(row.operation_id), told, "", "", "", _about(row.trouble))
            continue
        table.add_row(
            printable(row.operation_id),
            _state(data, is_backup=row.is_backup),
            f"{span(view.age_s(data.start_time))} ago",
            str(len(data.stack)),
            Text("") if data.is_over else _heartbeat(heard_of(data), view),
            _about(data.failure_reason or data.description or ""),
        )
    return table


def heard_of(data: LedgerData) -> datetime:
    """When anybody who takes part last said so. In a clean-up only their calls tell."""
    return max([data.last_heartbeat, *(frame.last_heartbeat for frame in data.stack)])


def participants(frames: Iterable[StackFrame]) -> str:
    """Their names and process ids, once each."""
    return ", ".join(dict.fromkeys(str(frame.owner) for frame in frames))


def span(seconds: float) -> str:
    """A time for people: `0.4s`, `12s`, `3m 20s`, `5h 2m`, `3d 4h`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for size, unit, smaller, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{part}"
    return f"{whole}s"


def printable(text: str) -> str:
    """Control characters as escapes: what a program wrote to a ledger does not steer a terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _head(data: LedgerData, view: View, *, is_backup: bool) -> Text:
    head = Text.assemble((printable(data.operation_id), "bold"), "  ")
    head.append_text(_state(data, is_backup=is_backup))
    if data.description:
        head.append(f"  {printable(data.description)}")
    head.append(f"\nby {printable(data.initiator_id)}, {span(view.age_s(data.start_time))} ago")
    if not data.is_over:
        head.append(", heartbeat ").append_text(_heartbeat(heard_of(data), view))
    if data.failure_reason:
        head.append(f"\n{printable(data.failure_reason)}", style="red")
    return head


def _participant(data: LedgerData, frames: Sequence[StackFrame], view: View) -> Text:
    owner = frames[0].owner
    text = Text.assemble((printable(owner.participant_id), "bold"), f"  pid {owner.pid}")
    if all(frame.state is FrameState.CLEANED_UP for frame in frames):
        return text.append("  has cleaned up", style="green")
    heard = max(frame.last_heartbeat for frame in frames)
    text.append("  heartbeat ").append_text(_heartbeat(heard, view))
    if owner == data.coordinator:
        text.append("  coordinates the clean-up", style="yellow")
    return text


def _call(frame: StackFrame, view: View) -> Text:
    text = Text.assemble(printable(frame.call_id), "  ", (str(frame.state), _COLOURS[frame.state]))
    text.append(f"  for {span(view.age_s(frame.start_time))}")
    if not frame.fail_on_crash:
        text.append("  may crash alone", style="dim")
    if frame.description:
        text.append(f"  {printable(frame.description)}")
    return text


def _about(text: str) -> Text:
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _state(data: LedgerData, *, is_backup: bool) -> Text:
    text = Text(str(data.operation_state), style=_COLOURS[data.operation_state])
    if data.aborted and data.operation_state is OperationState.RUNNING:
        text.append(", to be aborted", style="yellow")
    return text.append(", in backup", style="dim") if is_backup else text


def _heartbeat(when: datetime, view: View) -> Text:
    age = f"{span(view.age_s(when))} ago"
    return Text(f"{age}, stale", style="red") if view.is_stale(when) else Text(age, style="green")


def _by_owner(stack: Iterable[StackFrame]) -> list[list[StackFrame]]:
    found: dict[object, list[StackFrame]] = {}
    for frame in stack:
        found.setdefault(frame.owner, []).append(frame)
    return list(found.values())
