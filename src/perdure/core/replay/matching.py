"""Compares the events of a replayed program with its journal."""

import msgspec

from perdure.core.journal import events as e
from perdure.core.replay.shapes import revealed, shape

_IGNORED: dict[type[e.Event], frozenset[str]] = {
    # When a timer fires was decided once; the backoff of a retry and the queue of a task may change with the code.
    e.TimerScheduled: frozenset(("fire_at_ms",)),
    e.InvokeScheduled: frozenset(("retry_policy", "place", "queue")),
    e.RandomGenerated: frozenset(("value",)),
    e.TimeRecorded: frozenset(("time_us",)),
    # What an exception says may hold an address or a line number.
    e.InvokeCompleted: frozenset(("payload",)),
    e.ExecutionFailed: frozenset(("payload",)),
}
_NONE: frozenset[str] = frozenset()
_MAY_LACK = frozenset(("payload", "signal"))


class Divergence(msgspec.Struct, frozen=True):
    """The first difference between a program and its journal. Its text shows shapes of payloads, not values."""

    seq: int
    recorded: e.Event | None
    actual: e.Event | None
    place: str
    reason: str = ""

    def __str__(self) -> str:
        return self.text()

    def text(self, *, reveal: bool = False) -> str:
        """The same; `reveal` shows the payloads themselves."""
        lines = [f"at entry {self.seq}, {self.place}:"]
        lines.append(f"  - journal: {describe_event(self.recorded, reveal=reveal)}")
        lines.append(f"  + program: {describe_event(self.actual, reveal=reveal)}")
        if self.reason:
            lines.append(f"  {self.reason}")
        return "\n".join(lines)


def differs(recorded: e.Event, actual: e.Event) -> bool:
    """Whether the program's event differs from the recorded one in a field that counts."""
    kind = type(recorded)
    if kind is not type(actual):
        return True
    if recorded == actual:
        return False
    ignored = _IGNORED.get(kind, _NONE)
    for name in kind.__struct_fields__:
        if name in ignored:
            continue
        before = getattr(recorded, name)
        # An erased payload can't be compared any more; older waits of several kinds name no signals.
        if before != getattr(actual, name) and not (name in _MAY_LACK and before is None):
            return name != "signal" or not _is_same_wait(recorded, actual)
    return False


def _is_same_wait(recorded: e.Event, actual: e.Event) -> bool:
    """Whether two waits name the same signals. What they show to people may change with the code."""
    if not (isinstance(recorded, e.ExecutionAwaiting) and isinstance(actual, e.ExecutionAwaiting)):
        return False
    before, now = ([each.bare for each in event.signals] for event in (recorded, actual))
    return before == now


def describe_event(event: e.Event | None, *, reveal: bool = False) -> str:
    """An event as text, with the shape of its payload, or with `reveal` the payload itself."""
    if event is None:
        return "(nothing)"
    shown = []
    for name in type(event).__struct_fields__:
        value = getattr(event, name)
        if name in ("staged", "guid", "released", "claim") or value is None:
            continue
        if isinstance(value, bytes):
            value = revealed(value) if reveal else shape(value)
        shown.append(f"{name}={value}")
    return f"{type(event).__name__}({', '.join(shown)})"
