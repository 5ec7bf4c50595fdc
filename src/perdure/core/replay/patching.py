"""Markers: entries that record from which entry on a run follows a patch of its program.

A marker is a `Posted` that posts nothing. It is a decision of the program, like a drawn number, but one that
nothing else depends on: a program that does not ask for the patch any more need not repeat it. So replay sets
markers apart and compares the rest.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from perdure.core.journal.events import Event, Posted

_PREFIX = "patch:"

CONTINUE: Final = ""
"""In place of a patch: the run is advised to continue as new from here on. No patch has an empty id."""


def marker_of(patch: str) -> Posted:
    """The marker of a patch."""
    return Posted(f"{_PREFIX}{patch}", ())


def patch_of(event: Event) -> str | None:
    """The patch that an event marks; `None` for any other event."""
    if isinstance(event, Posted) and event.label.startswith(_PREFIX):
        return event.label.removeprefix(_PREFIX)
    return None


def set_markers_apart(events: Iterable[Event]) -> tuple[Sequence[Event], dict[str, int]]:
    """The events that are no markers, and for each marker how many of them stand before it."""
    others: list[Event] = []
    markers: dict[str, int] = {}
    for event in events:
        patch = patch_of(event) if type(event) is Posted else None
        if patch is None:
            others.append(event)
        else:
            markers.setdefault(patch, len(others))
    return others, markers
