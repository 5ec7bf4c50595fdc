"""Renders one operation as a tree of participants and calls, and several as a table."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from perdure.cli.output import printable, span
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


class ListedOperation(NamedTuple):
    """An operation in a list. `data` is `None` if its ledger is unreadable; `error` then says why."""

    operation_id: str
    data: LedgerData | None
    is_backup: bool = False
    error: str = ""


class HeartbeatClock(NamedTuple):
    """The time of reading, and the age from which a heartbeat is stale."""

    at: datetime
    staleness_s: float

    def age_s(self, when: datetime) -> float:
        """Compares the writer's clock with the reader's; they may differ, so the age is at least 0."""
        return max(0.0, (self.at - when).total_seconds())

    def is_stale(self, when: datetime) -> bool:
        return self.age_s(when) > self.staleness_s


def operation_tree(data: LedgerData, clock: HeartbeatClock, *, is_backup: bool = False) -> Tree:
    """The operation, its participants below it, and their calls below them."""
    tree = Tree(_head(data, clock, is_backup=is_backup), guide_style="dim")
    for frames in _by_owner(data.stack):
        branch = tree.add(_participant(data, frames, clock))
        for frame in frames:
            leaf = branch.add(_call(frame, clock))
            for path in frame.resources:
                leaf.add(Text(f"temporary: {printable(path)}", style="dim"))
    if not data.stack and not data.is_over:
        tree.add(Text("no open calls", style="dim"))
    for path in data.temp_resources:
        if not data.is_over:
            tree.add(Text(f"temporary: {printable(path)}", style="dim"))
    return tree


def operation_list(rows: Sequence[ListedOperation], clock: HeartbeatClock) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("OPERATION", "STATE", "STARTED", "CALLS", "HEARTBEAT"):
        table.add_column(name, justify="right" if name == "CALLS" else "left", no_wrap=True)
    table.add_column("ABOUT")  # The only column that is cut in a narrow terminal.
    for row in rows:
        data = row.data
        if data is None:
            state = Text("unreadable", style="red")
            table.add_row(printable(row.operation_id), state, "", "", "", _about(row.error))
            continue
        table.add_row(
            printable(row.operation_id),
            _state(data, is_backup=row.is_backup),
            f"{span(clock.age_s(data.start_time))} ago",
            str(len(data.stack)),
            Text("") if data.is_over else _heartbeat(last_heartbeat_of(data), clock),
            _about(data.failure_reason or data.description or ""),
        )
    return table


def last_heartbeat_of(data: LedgerData) -> datetime:
    """The newest heartbeat of the operation and its calls; during a clean-up only the calls have new ones."""
    return max([data.last_heartbeat, *(frame.last_heartbeat for frame in data.stack)])


def participants(frames: Iterable[StackFrame]) -> str:
    """Names and process ids of the owners, once each."""
    return ", ".join(dict.fromkeys(str(frame.owner) for frame in frames))


def _head(data: LedgerData, clock: HeartbeatClock, *, is_backup: bool) -> Text:
    head = Text.assemble((printable(data.operation_id), "bold"), "  ")
    head.append_text(_state(data, is_backup=is_backup))
    if data.description:
        head.append(f"  {printable(data.description)}")
    head.append(
        f"\nstarted by {printable(data.initiator_id)} {span(clock.age_s(data.start_time))} ago"
    )
    if not data.is_over:
        head.append(", last heartbeat ").append_text(_heartbeat(last_heartbeat_of(data), clock))
    if data.failure_reason:
        head.append(f"\n{printable(data.failure_reason)}", style="red")
    return head


def _participant(data: LedgerData, frames: Sequence[StackFrame], clock: HeartbeatClock) -> Text:
    owner = frames[0].owner
    text = Text.assemble((printable(owner.participant_id), "bold"), f"  pid {owner.pid}")
    if all(frame.state is FrameState.CLEANED_UP for frame in frames):
        return text.append("  has cleaned up", style="green")
    heard = max(frame.last_heartbeat for frame in frames)
    text.append("  heartbeat ").append_text(_heartbeat(heard, clock))
    if owner == data.coordinator:
        text.append("  coordinates the clean-up", style="yellow")
    return text


def _call(frame: StackFrame, clock: HeartbeatClock) -> Text:
    text = Text.assemble(printable(frame.call_id), "  ", (str(frame.state), _COLOURS[frame.state]))
    text.append(f"  for {span(clock.age_s(frame.start_time))}")
    if not frame.fail_on_crash:
        text.append("  crash contained", style="dim")
    if frame.description:
        text.append(f"  {printable(frame.description)}")
    return text


def _about(text: str) -> Text:
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _state(data: LedgerData, *, is_backup: bool) -> Text:
    text = Text(str(data.operation_state), style=_COLOURS[data.operation_state])
    if data.aborted and data.operation_state is OperationState.RUNNING:
        text.append(", abort requested", style="yellow")
    return text.append(", in backups", style="dim") if is_backup else text


def _heartbeat(when: datetime, clock: HeartbeatClock) -> Text:
    age = f"{span(clock.age_s(when))} ago"
    return Text(f"{age}, stale", style="red") if clock.is_stale(when) else Text(age, style="green")


def _by_owner(stack: Iterable[StackFrame]) -> list[list[StackFrame]]:
    found: dict[object, list[StackFrame]] = {}
    for frame in stack:
        found.setdefault(frame.owner, []).append(frame)
    return list(found.values())
