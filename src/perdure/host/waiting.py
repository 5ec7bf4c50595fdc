"""Steps that wait for a slot."""

from collections import OrderedDict

from perdure.core.ids import RunId, StepId


class WaitingSteps:
    """Apart for async bodies and for threads, each in the order of asking."""

    def __init__(self) -> None:
        self._lines: dict[bool, OrderedDict[tuple[RunId, StepId], None]] = {
            is_async: OrderedDict() for is_async in (True, False)
        }

    def has_any(self, is_async: bool) -> bool:
        return bool(self._lines[is_async])

    def add(self, is_async: bool, run_id: RunId, step: StepId) -> None:
        self._lines[is_async][run_id, step] = None

    def take(self, is_async: bool) -> tuple[RunId, StepId]:
        """The one that waits longest."""
        return self._lines[is_async].popitem(last=False)[0]

    def drop(self, run_id: RunId, step: StepId) -> None:
        """Nobody wants it any more."""
        for line in self._lines.values():
            line.pop((run_id, step), None)
