"""Operations that a program has made and not awaited yet: it may have forgotten to."""

from typing import Any

from perdure.authoring.call import Call, Operation


class Unawaited:
    """Those of one run."""

    def __init__(self) -> None:
        self._operations: dict[int, Operation[Any]] = {}

    def add(self, operation: Operation[Any]) -> None:
        self._operations[id(operation)] = operation

    def remove(self, operation: Operation[Any]) -> None:
        self._operations.pop(id(operation), None)

    def disown(self) -> list[str]:
        """What was called to make those that are left; nobody waits for them any more."""
        called = set()
        for operation in self._operations.values():
            if isinstance(operation, Call):
                if operation.is_used:
                    continue
                operation.is_used = True
            called.add(operation.called)
        self._operations.clear()
        return sorted(called)
