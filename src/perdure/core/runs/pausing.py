"""Who paused a run, by its journal."""

from collections.abc import Iterable

import msgspec

from perdure.core.journal import events as e
from perdure.core.journal.entry import Entry


class PauseRecord(msgspec.Struct, frozen=True):
    """A pause that no resume has ended. `by` is empty if the act named no operator."""

    since_ms: int
    reason: str = ""
    by: str = ""


def pause_of(entries: Iterable[Entry]) -> PauseRecord | None:
    """The pause that is in force."""
    found: PauseRecord | None = None
    actors: dict[str, str] = {}
    for entry in entries:
        match entry.event:
            case e.SignalAccepted(signal_id=signal, by=by):
                actors[signal] = by
            case e.RunPaused(reason=reason, signal_id=signal_id):
                found = PauseRecord(entry.at_ms, reason, actors.get(signal_id or "", ""))
            case e.RunResumed():
                found = None
            case _:
                pass
    return found
