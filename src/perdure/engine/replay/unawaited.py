"""Operations that a program has made and not awaited yet: it may have forgotten to."""

from typing import Any

from perdure.authoring.call import Call, Operation


class Unawaited(dict[int, Operation[Any]]):
    """Those of one run, by their identity. A dict, because every step adds one and takes it out again."""

    def disown(self) -> list[str]:
        """What was called to make those that are left; nobody waits for them any more."""
        called = set()
        for operation in self.values():
            if isinstance(operation, Call):
                if operation.is_used:
                    continue
                operation.is_used = True
            called.add(operation.called)
        self.clear()
        return sorted(called)
