"""Calls that a program has made and not awaited yet: it may have forgotten to."""

from typing import Any

from perdure.authoring.call import Call


class Unawaited:
    """Those of one run."""

    def __init__(self) -> None:
        self._calls: dict[int, Call[Any]] = {}

    def add(self, call: Call[Any]) -> None:
        self._calls[id(call)] = call

    def remove(self, call: Call[Any]) -> None:
        self._calls.pop(id(call), None)

    def disown(self) -> list[str]:
        """The names of those that are left; nobody waits for them any more."""
        names = {call.definition.name for call in self._calls.values() if not call.is_used}
        for call in self._calls.values():
            call.is_used = True
        self._calls.clear()
        return sorted(names)
