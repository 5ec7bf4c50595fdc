"""How large the journal of a run is, and from when on it suggests that the run continues as new."""

from collections.abc import Sequence
from typing import Final

from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry

STEPS: Final = frozenset({e.InvokeScheduled, e.TimerScheduled, e.SignalReceived})
"""The events that count as a step. `WarmRun.write` counts those that the run writes: it sees each event anyway."""

_STEP_BODIES: Final = tuple(f'{{"type":"{kind.__name__}"' for kind in STEPS)

ENTRY_SIZE: Final = 150
"""What an entry takes beside its payload, by an estimate: it is counted before it is written."""


class JournalSize:
    """The steps and bytes of a run's journal, and how many it may have before it is long."""

    __slots__ = ("bytes", "most_bytes", "most_steps", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.bytes = 0
        self.most_steps = 0
        """0 is no limit; so it is for bytes."""
        self.most_bytes = 0

    @property
    def is_long(self) -> bool:
        return 0 < self.most_steps <= self.steps or 0 < self.most_bytes <= self.bytes

    def add_entries(self, entries: Sequence[Entry]) -> None:
        """Count what a run was loaded from."""
        self.steps += sum(entry.body.startswith(_STEP_BODIES) for entry in entries)
        self.bytes += sum(ENTRY_SIZE + len(entry.sealed or b"") for entry in entries)
