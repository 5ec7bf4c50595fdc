"""Did the program do again what the journal says it did?"""

import msgspec

from perdure.core.journal import events as e

_IGNORED: dict[type[e.Event], frozenset[str]] = {
    # When a timer fires was decided once; how patient a retry is may change with the code.
    e.TimerScheduled: frozenset(("fire_at_ms",)),
    e.InvokeScheduled: frozenset(("retry_policy",)),
    e.RandomGenerated: frozenset(("value",)),
    e.TimeRecorded: frozenset(("time_us",)),
    # What an exception says may hold an address or a line number.
    e.InvokeCompleted: frozenset(("payload",)),
    e.ExecutionFailed: frozenset(("payload",)),
}
_NONE: frozenset[str] = frozenset()


class Divergence(msgspec.Struct, frozen=True):
    """Where a program left the path that its journal records."""

    seq: int
    recorded: e.Event | None
    actual: e.Event | None
    place: str
    reason: str = ""

    def __str__(self) -> str:
        lines = [f"at entry {self.seq}, {self.place}:"]
        lines.append(f"  - journal: {spell(self.recorded)}")
        lines.append(f"  + program: {spell(self.actual)}")
        if self.reason:
            lines.append(f"  {self.reason}")
        return "\n".join(lines)


def differs(recorded: e.Event, actual: e.Event) -> bool:
    """Whether the program's event is another than the recorded one, in anything that matters."""
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
        # An erased payload can't be compared any more.
        if before != getattr(actual, name) and not (name == "payload" and before is None):
            return True
    return False


def spell(event: e.Event | None) -> str:
    """An event, for people."""
    if event is None:
        return "(nothing)"
    shown = []
    for name in type(event).__struct_fields__:
        value = getattr(event, name)
        if name in ("staged", "guid", "released", "claim") or value is None:
            continue
        if isinstance(value, bytes):
            text = value.decode(errors="replace")
            value = text if len(text) <= 200 else f"{text[:200]}..."
        shown.append(f"{name}={value}")
    return f"{type(event).__name__}({', '.join(shown)})"
