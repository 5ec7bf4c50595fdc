"""Operations that a program has created and not awaited yet: it may have forgotten the `await`."""

from typing import Any

from perdure.authoring.call import Call, DurableOperation


class Unawaited(dict[int, DurableOperation[Any]]):
    """The unawaited operations of one run, by identity. A dict, because every step adds one and removes it."""

    __slots__ = ()

    def disown(self) -> list[str]:
        """Mark the remaining operations as used. Returns the names of what was called."""
        called = set()
        for operation in self.values():
            if isinstance(operation, Call):
                if operation.is_used:
                    continue
                operation.is_used = True
            called.add(operation.called)
        self.clear()
        return sorted(called)
